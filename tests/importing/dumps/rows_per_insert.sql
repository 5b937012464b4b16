--
-- PostgreSQL database dump
--

\restrict 0123456789abcdef

-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: public; Type: SCHEMA; Schema: -; Owner: postgres
--

-- *not* creating schema, since initdb creates it


ALTER SCHEMA public OWNER TO postgres;

--
-- Name: SCHEMA public; Type: COMMENT; Schema: -; Owner: postgres
--

COMMENT ON SCHEMA public IS '';


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: LiteLLM_DeletedVerificationToken; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public."LiteLLM_DeletedVerificationToken" (
    id text NOT NULL,
    token text NOT NULL
);


ALTER TABLE public."LiteLLM_DeletedVerificationToken" OWNER TO postgres;

--
-- Name: LiteLLM_ProxyModelTable; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public."LiteLLM_ProxyModelTable" (
    model_id text NOT NULL,
    model_name text NOT NULL,
    litellm_params jsonb NOT NULL
);


ALTER TABLE public."LiteLLM_ProxyModelTable" OWNER TO postgres;

--
-- Name: LiteLLM_SpendLogs; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public."LiteLLM_SpendLogs" (
    request_id text NOT NULL,
    messages jsonb DEFAULT '{}'::jsonb,
    note text
);


ALTER TABLE public."LiteLLM_SpendLogs" OWNER TO postgres;

--
-- Name: LiteLLM_TeamTable; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public."LiteLLM_TeamTable" (
    team_id text NOT NULL,
    team_alias text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    max_budget double precision,
    models text[],
    tpm_limit bigint,
    blocked boolean DEFAULT false NOT NULL
);


ALTER TABLE public."LiteLLM_TeamTable" OWNER TO postgres;

--
-- Name: LiteLLM_VerificationToken; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public."LiteLLM_VerificationToken" (
    token text NOT NULL,
    key_name text,
    key_alias text,
    soft_budget_cooldown boolean DEFAULT false NOT NULL,
    spend double precision DEFAULT 0.0 NOT NULL,
    expires timestamp(3) without time zone,
    models text[],
    aliases jsonb DEFAULT '{}'::jsonb NOT NULL,
    config jsonb DEFAULT '{}'::jsonb NOT NULL,
    user_id text,
    team_id text,
    permissions jsonb DEFAULT '{}'::jsonb NOT NULL,
    max_parallel_requests integer,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    blocked boolean,
    tpm_limit bigint,
    rpm_limit bigint,
    max_budget double precision,
    budget_duration text,
    budget_reset_at timestamp(3) without time zone,
    allowed_routes text[] DEFAULT ARRAY[]::text[],
    budget_id text,
    created_at timestamp(3) without time zone DEFAULT CURRENT_TIMESTAMP
);


ALTER TABLE public."LiteLLM_VerificationToken" OWNER TO postgres;

--
-- Data for Name: LiteLLM_DeletedVerificationToken; Type: TABLE DATA; Schema: public; Owner: postgres
--

INSERT INTO public."LiteLLM_DeletedVerificationToken" VALUES
	('1', 'bf36a8b85ffe5fe4f2a40dee62c5af45e46bb48e6d07a9b3ae11c27b72e704aa');


--
-- Data for Name: LiteLLM_ProxyModelTable; Type: TABLE DATA; Schema: public; Owner: postgres
--

INSERT INTO public."LiteLLM_ProxyModelTable" VALUES
	('m-1', 'added-by-hand', '{"model": "gAAAAencrypted", "api_key": "gAAAAencrypted"}');


--
-- Data for Name: LiteLLM_SpendLogs; Type: TABLE DATA; Schema: public; Owner: postgres
--

INSERT INTO public."LiteLLM_SpendLogs" VALUES
	('r1', '{"a": 1}', 'COPY public."LiteLLM_VerificationToken" (token) FROM stdin;
274c25413f06a0b3d7f2cbd90d46e070a0761843c6403cb08bf00eb337d67b0c
\.
INSERT INTO public."LiteLLM_VerificationToken" (token) VALUES (''274c25413f06a0b3d7f2cbd90d46e070a0761843c6403cb08bf00eb337d67b0c'');
');


--
-- Data for Name: LiteLLM_TeamTable; Type: TABLE DATA; Schema: public; Owner: postgres
--

INSERT INTO public."LiteLLM_TeamTable" VALUES
	('team-search', 'Search', '{}', 500, '{chat-small,code}', NULL, false),
	('team-legal', 'Legal', '{}', NULL, '{}', NULL, false),
	('team-old', 'Old', '{}', NULL, '{}', NULL, true);


--
-- Data for Name: LiteLLM_VerificationToken; Type: TABLE DATA; Schema: public; Owner: postgres
--

INSERT INTO public."LiteLLM_VerificationToken" VALUES
	('64d55041cbfa330bcf8597873b404eccdc1bfa5c4a3ce917b74122cdf8407acd', 'sk-...7f3e', 'web-frontend', false, 0, NULL, '{chat}', '{}', '{}', NULL, 'team-search', '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678'),
	('8113fd24c6c9fa47a5db13a6a1258adf0450aeb398996ba7bf90b309fabcc756', 'sk-...y-11', 'nightly', false, 0, NULL, '{}', '{}', '{}', NULL, 'team-search', '{}', NULL, '{"service": "it''s"}', NULL, 100000, 600, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678'),
	('8be2b596d10295360973934d4e3d5389dd6ab4d36967accd3ab162075b728cc8', 'sk-...h-22', 'search-default', false, 0, NULL, '{all-team-models}', '{}', '{}', NULL, 'team-search', '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678');
INSERT INTO public."LiteLLM_VerificationToken" VALUES
	('1dd3876cdd97bcfde8deab90c0afaee7feb1adfa681e5bf63a852e3ff87182b2', 'sk-...l-33', 'contract review (legal)', false, 0, NULL, '{legal,opus}', '{}', '{}', NULL, 'team-legal', '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678'),
	('f59fa44ab194043cdc303db36dfe380cf135d61fc58141ee8f521c55183bf1a6', 'sk-...v-44', NULL, false, 0, NULL, '{}', '{}', '{}', NULL, NULL, '{}', 5, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678'),
	('1c371d0e83b5b0c306d761da5f13ca6200b6823119f8597ef5d9e35cb8f6edf1', 'sk-...r-55', 'contractor', false, 0, '2024-05-01 10:00:00.5', '{}', '{}', '{}', NULL, NULL, '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678');
INSERT INTO public."LiteLLM_VerificationToken" VALUES
	('ee6cff1ae2a7665de8a5d7277954f93802a6426f6f6cf91d69b2a887413cf41f', 'sk-...l-66', 'trial', false, 0, '2099-01-31 00:00:00', '{code}', '{}', '{}', NULL, NULL, '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678'),
	('a00d1d5fded27a712dcca13337863febda77ce511e9ea924016e1026d6c52af0', 'sk-...r-77', 'leaver', false, 0, NULL, '{}', '{}', '{}', NULL, 'team-search', '{}', NULL, '{"service": "it''s"}', true, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678'),
	('2e1cd8ea7fd2715b88d2df4add524b8d4f05153af8dcc2005576c602223c3f79', 'sk-...n-88', NULL, false, 0, NULL, '{}', '{}', '{}', NULL, 'litellm-dashboard', '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678');
INSERT INTO public."LiteLLM_VerificationToken" VALUES
	('21608f5c5374b15e7364067712b002bb27c85a2ec537ea9458d34a81659700ee', 'sk-...i-99', 'ci-provisioning', false, 0, NULL, '{}', '{}', '{}', NULL, NULL, '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{management_routes}', NULL, '2026-01-02 03:04:05.678'),
	('bcfe2926b5f7056088cf00927826149d3a82bbed0fd567e3168129ca95805dfa', 'sk-...m-aa', 'old-batch', false, 0, NULL, '{}', '{}', '{}', NULL, 'team-old', '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '2026-01-02 03:04:05.678'),
	('800cc13269b5040b6e8f09200b0c3fd644d611a6d4f1675fe6d80fec06bf7d5f', 'sk-...t-bb', 'intern', false, 25.5, NULL, '{chat-small}', '{}', '{}', NULL, 'team-legal', '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, 25, '30d', NULL, '{}', NULL, '2026-01-02 03:04:05.678');
INSERT INTO public."LiteLLM_VerificationToken" VALUES
	('0837a853b4667b3354b09818a384bb49b9c1e95ab60e735f6171f1962d947909', 'sk-...d-cc', 'embedder', false, 0, NULL, '{all-proxy-models}', '{"best": "chat-large"}', '{}', NULL, NULL, '{}', NULL, '{"service": "it''s"}', NULL, NULL, NULL, NULL, NULL, NULL, '{/v1/embeddings}', NULL, '2026-01-02 03:04:05.678');


--
-- Name: LiteLLM_TeamTable LiteLLM_TeamTable_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public."LiteLLM_TeamTable"
    ADD CONSTRAINT "LiteLLM_TeamTable_pkey" PRIMARY KEY (team_id);


--
-- Name: LiteLLM_VerificationToken LiteLLM_VerificationToken_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public."LiteLLM_VerificationToken"
    ADD CONSTRAINT "LiteLLM_VerificationToken_pkey" PRIMARY KEY (token);


--
-- Name: SCHEMA public; Type: ACL; Schema: -; Owner: postgres
--

REVOKE USAGE ON SCHEMA public FROM PUBLIC;


--
-- PostgreSQL database dump complete
--

\unrestrict 0123456789abcdef

