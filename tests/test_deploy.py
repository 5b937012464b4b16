"""What deploy/ holds for systemd and Kubernetes is whole, and its figures agree with each other and with the gateway."""

from __future__ import annotations

import configparser
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.check import check
from gateway.config.load import load
from gateway.config.schema import Config
from gateway.http.server import LAST_WORDS_S

DEPLOY = Path(__file__).parent.parent / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
UNIT = DEPLOY / "systemd/trilemma.service"
# Storing what waits, at most.
DECISIONS_S = 5
# Managed engines: asked, then killed, each by the supervisor, then by the gateway.
ENGINES_S = 25
DIGESTS = [hashlib.sha256(name).hexdigest() for name in (b"apps", b"ops")]


def served(text: str, folder: Path, env: Mapping[str, str]) -> Config:
    """A configuration without problems."""
    file = folder / "trilemma.yaml"
    file.write_text(text)
    loaded = load(file, env)
    assert [problem.text("trilemma.yaml") for problem in loaded.located(check(loaded.config))] == []
    return loaded.config


def secret(file: Path) -> None:
    """A file that holds one, as it is mounted."""
    file.touch(mode=0o600)
    file.write_text("a-secret\n")


def seconds_to_end(config: Config, *, engines: bool) -> float:
    """From SIGTERM on, at most."""
    return config.server.grace_s + 2 * LAST_WORDS_S + DECISIONS_S + (ENGINES_S if engines else 0)


# -- systemd


def unit() -> Mapping[str, Mapping[str, str]]:
    """Of a setting that is given several times the last."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser


@pytest.fixture
def systemd_config(tmp_path: Path) -> Config:
    for name in ("secrets_server", "secrets_vllm"):
        secret(tmp_path / name)
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path), "STATE_DIRECTORY": str(tmp_path)}
    return served((DEPLOY / "systemd/trilemma.yaml").read_text(), tmp_path, env)


def test_the_unit_gives_the_gateway_time_to_end(systemd_config: Config) -> None:
    service = unit()["Service"]
    assert int(service["TimeoutStopSec"]) >= seconds_to_end(systemd_config, engines=True)
    assert service["KillMode"] == "mixed"


def test_the_unit_starts_and_watches_the_gateway() -> None:
    service = unit()["Service"]
    kinds = re.findall(r"^Type=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert kinds == ["notify", "notify-reload"]
    assert int(service["WatchdogSec"]) > 5
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert service["ExecStart"].split()[1:] == [
        *("serve", "--config", "/etc/trilemma/trilemma.yaml", "--state", "${STATE_DIRECTORY}"),
    ]
    assert int(service["LimitNOFILE"]) >= 65_536
    assert unit()["Install"]["WantedBy"] == "multi-user.target"


def test_the_unit_is_confined() -> None:
    service = unit()["Service"]
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelModules", "RestrictSUIDSGID"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["StateDirectory"] == "trilemma"
    assert service["LoadCredential"] == "secrets:/etc/trilemma/secrets"


def test_the_unit_as_systemd_reads_it(tmp_path: Path) -> None:
    """By the rules of its file format; where systemd is installed also by its own judgement."""
    for line in UNIT.read_text().splitlines():
        assert re.fullmatch(r"|#.*|\[(Unit|Service|Install)\]|[A-Z][A-Za-z]+=.*", line), line
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        copy = tmp_path / UNIT.name
        copy.write_text(UNIT.read_text().replace("/opt/trilemma/bin/trilemma", str(Path(sys.executable).with_name("trilemma"))))
        verified = subprocess.run([analyze, "verify", "--man=no", copy], capture_output=True, text=True)
        assert verified.returncode == 0, verified.stderr
        complaints = [line for line in verified.stderr.splitlines() if copy.name in line]
        assert [line for line in complaints if "notify-reload" not in line] == []


# -- Kubernetes


def objects() -> dict[str, dict[str, Any]]:
    """By kind; there is one of each."""
    found = [each for file in sorted(KUBERNETES.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
    assert len({each["kind"] for each in found}) == len(found)
    return {each["kind"]: each for each in found}


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = objects()["Deployment"]["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    return dict(only)


@pytest.fixture
def kubernetes_config(tmp_path: Path) -> Config:
    text = objects()["ConfigMap"]["data"]["trilemma.yaml"]
    mounted = next(each["mountPath"] for each in container()["volumeMounts"] if each["name"] == "secrets")
    for item in next(each["secret"]["items"] for each in pod()["volumes"] if each["name"] == "secrets"):
        secret(tmp_path / item["path"])
    names = [each["name"] for each in container()["env"]]
    return served(text.replace(mounted, str(tmp_path)), tmp_path, dict(zip(names, DIGESTS, strict=True)))


def test_a_pod_has_time_to_end(kubernetes_config: Config) -> None:
    """The time for preStop is taken from the pod's own."""
    command, seconds = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep" and int(seconds) >= 5
    assert pod()["terminationGracePeriodSeconds"] >= int(seconds) + seconds_to_end(kubernetes_config, engines=False)


def test_the_cluster_is_asked_for_what_the_configuration_needs(kubernetes_config: Config) -> None:
    found = objects()
    (backend,) = kubernetes_config.backends.values()
    assert backend.discover is not None and backend.discover.kubernetes is not None
    assert backend.discover.kubernetes.namespace is None, "the gateway's own, for which the Role is"
    assert found["Role"]["rules"] == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    (subject,) = found["RoleBinding"]["subjects"]
    account = found["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert (pod()["serviceAccountName"], pod()["automountServiceAccountToken"]) == (account["name"], True)
    assert {each["metadata"]["namespace"] for each in found.values()} == {"inference"}


def test_the_pieces_fit(kubernetes_config: Config) -> None:
    found = objects()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert found[kind]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    (port,) = container()["ports"]
    assert (found["Service"]["spec"]["ports"][0]["targetPort"], port["containerPort"]) == (port["name"], kubernetes_config.server.port)
    assert kubernetes_config.server.host == "0.0.0.0"
    probes = {name: container()[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "startupProbe": "/health",
        "livenessProbe": "/health",
        "readinessProbe": "/ready",
    }
    assert {each["port"] for each in probes.values()} == {port["name"]}
    mounts = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in pod()["volumes"]}
    config, state = container()["args"][2], container()["args"][4]
    assert container()["args"] == ["serve", "--config", config, "--state", state]
    assert (config, state) == (f"{mounts['config']}/trilemma.yaml", mounts["state"])
    assert (
        next(each for each in pod()["volumes"] if each["name"] == "config")["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    )
    assert found["Deployment"]["spec"]["replicas"] > found["PodDisruptionBudget"]["spec"]["maxUnavailable"]


def test_a_pod_is_confined() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    user = pod()["securityContext"]["runAsUser"]
    assert f"useradd --uid {user} " in (DEPLOY / "Dockerfile").read_text()
    rules = container()["securityContext"]
    assert rules == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


# -- the page


def test_the_page_names_the_files_and_its_figures_are_those_of_the_files(kubernetes_config: Config) -> None:
    page = (DEPLOY.parent / "docs/operations.md").read_text()
    for file in (UNIT, DEPLOY / "systemd/trilemma.yaml", KUBERNETES):
        assert f"../{file.relative_to(DEPLOY.parent)}" in page
    pause = container()["lifecycle"]["preStop"]["exec"]["command"][1]
    assert f"`preStop` ({pause} s)" in page
    assert f"`grace_s` ({kubernetes_config.server.grace_s:g} s)" in page
    assert f"`terminationGracePeriodSeconds` ({pod()['terminationGracePeriodSeconds']} s)" in page
    assert f"`TimeoutStopSec` ({unit()['Service']['TimeoutStopSec']} s)" in page
