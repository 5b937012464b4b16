/*
 * mock: a cheap OpenAI backend for overhead measurements. One thread, epoll, canned answers.
 *
 *   cc -O2 -o mock mock.c && ./mock PORT
 *
 * It exists to cost as little as possible beside the gateway under test, so it looks at four things only: the request
 * line, the end of the request (Content-Length or chunked), "stream" and "include_usage", and whether the model's name
 * contains "slow".
 *
 *   POST .../chat/completions                581 bytes of JSON
 *   same with "stream": true                 role, 128 tokens, finish, [usage if asked for], [DONE]; a write each
 *   same with a model named "...slow..."     the same events, 10 ms apart
 *   GET  /v1/models, /health, /version, /metrics
 *
 * Linux only (epoll, timerfd).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    TOKENS = 128,
    EVENTS = TOKENS + 4, /* role, tokens, finish, usage, [DONE] */
    USAGE_EVENT = TOKENS + 2,
    MAX_CONNECTIONS = 65536,
    INITIAL_BUFFER = 16 * 1024,
    MAX_REQUEST = 64 * 1024 * 1024,
};
static const int64_t GAP_NS = 10 * 1000 * 1000;

typedef struct {
    char *bytes;
    size_t length;
} Text;

typedef struct Connection Connection;
struct Connection {
    int fd;
    char *in; /* bytes received and not yet answered */
    size_t in_length, in_size;
    char *out; /* bytes that the socket did not take yet */
    size_t out_sent, out_length;
    bool streaming, with_usage; /* a paced stream is under way */
    int next_event;
    int64_t due_ns;
    Connection *earlier, *later; /* place in the queue of paced streams */
};

static Connection *connections[MAX_CONNECTIONS];
static int epoll_fd, timer_fd;

/*
 * Paced streams in the order in which they are due. Every gap is equal, so a stream that has just written goes to the
 * tail (or, after a stall, a few places before it): the queue stays sorted without a search.
 */
static Connection *first_due, *last_due;

static Text events[EVENTS];
static Text completion, models, health, version, metrics, not_found, stream_head;

static void *must(void *pointer) {
    if (pointer == NULL) {
        fputs("mock: out of memory\n", stderr);
        exit(1);
    }
    return pointer;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- canned answers ------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 1, 2))) static Text format(const char *pattern, ...) {
    Text text;
    va_list arguments;
    va_start(arguments, pattern);
    int length = vasprintf(&text.bytes, pattern, arguments);
    va_end(arguments);
    if (length < 0) must(NULL);
    text.length = (size_t)length;
    return text;
}

static Text answer(const char *status, const char *content_type, const char *body) {
    return format("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nx-request-id: mock-1\r\n\r\n%s", status,
                  content_type, strlen(body), body);
}

/* One SSE event as one chunk of the chunked transfer coding. */
static Text chunk(Text event, const char *after) {
    Text framed = format("%zx\r\n%s\r\n%s", event.length, event.bytes, after);
    free(event.bytes);
    return framed;
}

#define ID "chatcmpl-7f3c2a9e5b1d4c6f8a0e2b4d6c8f0a1b"
#define CHUNK                                                                                                          \
    "data: {\"id\":\"" ID "\",\"object\":\"chat.completion.chunk\",\"created\":1762000000,\"model\":\"mock\","         \
    "\"choices\":["
#define CHOICE(delta, finish)                                                                                          \
    CHUNK "{\"index\":0,\"delta\":{" delta "},\"logprobs\":null,\"finish_reason\":" finish "}]}\n\n"

static void prepare_answers(void) {
    events[0] = chunk(format(CHOICE("\"role\":\"assistant\",\"content\":\"\"", "null")), "");
    for (int i = 1; i <= TOKENS; i++) events[i] = chunk(format(CHOICE("\"content\":\" tok%03d\"", "null"), i), "");
    events[TOKENS + 1] = chunk(format(CHOICE("", "\"stop\"")), "");
    events[USAGE_EVENT] = chunk(
        format(CHUNK "],\"usage\":{\"prompt_tokens\":200,\"total_tokens\":328,\"completion_tokens\":128}}\n\n"), "");
    events[EVENTS - 1] = chunk(format("data: [DONE]\n\n"), "0\r\n\r\n");
    stream_head = format("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                         "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n");
    completion = answer(
        "200 OK", "application/json",
        "{\"id\":\"" ID "\",\"object\":\"chat.completion\",\"created\":1762000000,\"model\":\"mock\",\"choices\":[{"
        "\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The quick brown fox jumps over the lazy dog, "
        "and then it considers the matter of routing language model requests to several backends while keeping an eye "
        "on quality, cost, latency and the health of each server in the fleet. In short: route well, measure often, "
        "and keep the hot path small.\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":200,\"total_tokens\":260,\"completion_tokens\":60}}");
    models = answer("200 OK", "application/json",
                    "{\"object\":\"list\",\"data\":["
                    "{\"id\":\"mock\",\"object\":\"model\",\"created\":1762000000,\"owned_by\":\"mock\","
                    "\"max_model_len\":32768},"
                    "{\"id\":\"mock-slow\",\"object\":\"model\",\"created\":1762000000,\"owned_by\":\"mock\","
                    "\"max_model_len\":32768}]}");
    health = answer("200 OK", "application/json", "{\"status\":\"ok\"}");
    version = answer("200 OK", "application/json", "{\"version\":\"0.0.0-mock\"}");
    metrics = answer("200 OK", "text/plain; version=0.0.4",
                     "# TYPE vllm:num_requests_running gauge\n"
                     "vllm:num_requests_running{model_name=\"mock\"} 0.0\n"
                     "# TYPE vllm:num_requests_waiting gauge\n"
                     "vllm:num_requests_waiting{model_name=\"mock\"} 0.0\n");
    not_found = answer("404 Not Found", "application/json", "{\"error\":{\"message\":\"Not Found\",\"code\":404}}");
}

/* ---- the queue of paced streams ------------------------------------------------------------------------------ */

static void queue_insert(Connection *c) {
    c->earlier = last_due;
    while (c->earlier && c->earlier->due_ns > c->due_ns) c->earlier = c->earlier->earlier;
    c->later = c->earlier ? c->earlier->later : first_due;
    if (c->earlier) c->earlier->later = c;
    else first_due = c;
    if (c->later) c->later->earlier = c;
    else last_due = c;
    c->streaming = true;
}

static void queue_remove(Connection *c) {
    if (!c->streaming) return;
    if (c->earlier) c->earlier->later = c->later;
    else first_due = c->later;
    if (c->later) c->later->earlier = c->earlier;
    else last_due = c->earlier;
    c->streaming = false;
}

static void arm_timer(void) {
    static int64_t armed_ns;
    int64_t due = first_due ? first_due->due_ns : 0; /* 0 disarms */
    if (due == armed_ns) return;
    armed_ns = due;
    struct itimerspec when = {.it_value = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- connections --------------------------------------------------------------------------------------------- */

static void watch(Connection *c, uint32_t what) {
    struct epoll_event e = {.events = what, .data.fd = c->fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void open_connection(int fd) {
    if (fd >= MAX_CONNECTIONS) {
        close(fd);
        return;
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Connection *c = must(calloc(1, sizeof *c));
    c->fd = fd;
    c->in_size = INITIAL_BUFFER;
    c->in = must(malloc(c->in_size + 1)); /* one more for the terminator that the string functions need */
    connections[fd] = c;
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static void close_connection(Connection *c) {
    queue_remove(c);
    connections[c->fd] = NULL;
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

/* Sends, or keeps what the socket does not take. A dead socket shows itself at the next recv. */
static void write_text(Connection *c, Text text) {
    const char *from = text.bytes;
    size_t left = text.length;
    if (c->out_length == c->out_sent) {
        ssize_t sent = send(c->fd, from, left, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return;
        if (sent > 0) {
            from += sent;
            left -= (size_t)sent;
        }
        if (left == 0) return;
        c->out_sent = c->out_length = 0;
    }
    c->out = must(realloc(c->out, c->out_length + left));
    memcpy(c->out + c->out_length, from, left);
    c->out_length += left;
    watch(c, EPOLLIN | EPOLLOUT);
}

static void flush(Connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (sent <= 0) return;
        c->out_sent += (size_t)sent;
    }
    watch(c, EPOLLIN);
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

static bool is_true(const char *body, const char *key) {
    const char *value = strstr(body, key);
    if (!value) return false;
    value += strlen(key);
    value += strspn(value, " \t\r\n:");
    return strncmp(value, "true", 4) == 0;
}

static bool model_is_slow(const char *body) {
    const char *value = strstr(body, "\"model\"");
    if (!value) return false;
    value = strchr(value + strlen("\"model\""), '"');
    if (!value) return false;
    const char *end = strchr(value + 1, '"');
    const char *slow = strstr(value, "slow");
    return end && slow && slow < end;
}

static void answer_chat(Connection *c, const char *body) {
    if (!is_true(body, "\"stream\"")) {
        write_text(c, completion);
        return;
    }
    c->with_usage = is_true(body, "\"include_usage\"");
    write_text(c, stream_head);
    if (model_is_slow(body)) {
        write_text(c, events[0]);
        c->next_event = 1;
        c->due_ns = now_ns() + GAP_NS;
        queue_insert(c);
        return;
    }
    for (int i = 0; i < EVENTS; i++)
        if (i != USAGE_EVENT || c->with_usage) write_text(c, events[i]);
}

static void answer_request(Connection *c, const char *line, const char *body) {
    const char *line_end = strchr(line, '\r');
    Text path = {.bytes = strchr(line, ' ')};
    if (path.bytes && line_end && path.bytes < line_end) path.length = (size_t)(line_end - path.bytes);
#define ASKS_FOR(what) (path.length && memmem(path.bytes, path.length, what, strlen(what)) != NULL)
    if (strncmp(line, "POST ", 5) == 0 && ASKS_FOR("/chat/completions")) answer_chat(c, body);
    else if (ASKS_FOR(" /v1/models")) write_text(c, models);
    else if (ASKS_FOR(" /health")) write_text(c, health);
    else if (ASKS_FOR(" /version")) write_text(c, version);
    else if (ASKS_FOR(" /metrics")) write_text(c, metrics);
    else write_text(c, not_found);
#undef ASKS_FOR
}

/* Length of the chunked body that starts at `body`, 0 while it is incomplete. Trailers are not expected. */
static size_t chunked_length(const char *body, const char *end) {
    const char *p = body;
    for (;;) {
        const char *line_end = memmem(p, (size_t)(end - p), "\r\n", 2);
        if (!line_end) return 0;
        size_t size = strtoul(p, NULL, 16);
        if (size > MAX_REQUEST || (size_t)(end - line_end) < size + 4) return 0;
        p = line_end + 2 + size + 2;
        if (size == 0) return (size_t)(p - body);
    }
}

/* Answers the first request of the buffer; returns its length, 0 while it is incomplete. */
static size_t take_request(Connection *c) {
    c->in[c->in_length] = 0;
    char *head_end = memmem(c->in, c->in_length, "\r\n\r\n", 4);
    if (!head_end) return 0;
    char *body = head_end + 4;
    size_t body_length = 0;
    for (char *line = c->in; line < head_end; line = (char *)memchr(line, '\n', (size_t)(body - line)) + 1) {
        if (strncasecmp(line, "content-length:", 15) == 0) body_length = strtoul(line + 15, NULL, 10);
        if (strncasecmp(line, "transfer-encoding: chunked", 26) == 0) {
            body_length = chunked_length(body, c->in + c->in_length);
            if (body_length == 0) return 0;
        }
    }
    size_t total = (size_t)(body - c->in) + body_length;
    if (c->in_length < total) return 0;
    char beyond = c->in[total];
    c->in[total] = 0; /* so that the string functions stop at the end of this request */
    answer_request(c, c->in, body);
    c->in[total] = beyond;
    return total;
}

/* A paced stream is answered to its end before the next request of the connection is looked at. */
static void take_requests(Connection *c) {
    size_t taken;
    while (c->in_length && !c->streaming && (taken = take_request(c)) > 0) {
        memmove(c->in, c->in + taken, c->in_length - taken);
        c->in_length -= taken;
    }
}

static void receive(Connection *c) {
    if (c->in_length == c->in_size) {
        if (c->in_size >= MAX_REQUEST) {
            close_connection(c);
            return;
        }
        c->in_size *= 2;
        c->in = must(realloc(c->in, c->in_size + 1));
    }
    ssize_t got = recv(c->fd, c->in + c->in_length, c->in_size - c->in_length, 0);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN) close_connection(c);
        return;
    }
    c->in_length += (size_t)got;
    take_requests(c);
}

static void write_due_events(void) {
    int64_t now = now_ns();
    while (first_due && first_due->due_ns <= now) {
        Connection *c = first_due;
        queue_remove(c);
        if (c->next_event == USAGE_EVENT && !c->with_usage) c->next_event++;
        write_text(c, events[c->next_event++]);
        if (c->next_event < EVENTS) {
            c->due_ns += GAP_NS; /* from when it was due, so that a late write does not slow the stream down */
            queue_insert(c);
        } else {
            take_requests(c);
        }
    }
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) {
        perror("mock: bind");
        exit(1);
    }
    return fd;
}

static void watch_for_input(int fd) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fputs("usage: mock PORT\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    prepare_answers();
    int listener = listen_on(atoi(argv[1]));
    epoll_fd = epoll_create1(0);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    watch_for_input(listener);
    watch_for_input(timer_fd);

    struct epoll_event ready[256];
    for (;;) {
        int count = epoll_wait(epoll_fd, ready, 256, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                int accepted;
                while ((accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) open_connection(accepted);
                continue;
            }
            if (fd == timer_fd) {
                uint64_t expirations;
                if (read(timer_fd, &expirations, sizeof expirations) < 0 && errno != EAGAIN) return 1;
                continue;
            }
            Connection *c = connections[fd];
            if (c && ready[i].events & EPOLLOUT) flush(c);
            if (c && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
        }
        write_due_events();
        arm_timer();
    }
}
