"""The manifests for Kubernetes fit its schemas, and the image. No test runs them on a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes_validate
import pytest

from oncebus.protocols.emulator.container import start_of
from oncebus.protocols.http.paths import LIVE, READY

from .deployments import DEPLOY, KUBERNETES, documents_in, pods_in

VERSION = "1.37"
USER = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "image" / "Containerfile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_a_manifest_fits_the_schemas(path: Path) -> None:
    for document in documents_in(path):
        kubernetes_validate.validate(document, VERSION, strict=True)
        document["spec"]["unknown"] = 1
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(document, VERSION, strict=True)


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_pods_run_without_privileges(path: Path) -> None:
    assert USER is not None
    for pod in pods_in(path):
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == USER.groups()
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {each["mountPath"] for each in container["volumeMounts"]} == {"/var/lib/oncebus", "/tmp"}


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_the_gateways_have_probes_and_a_service(path: Path) -> None:
    (service,) = [each for each in documents_in(path) if each["kind"] == "Service"]
    served = []
    for document in documents_in(path):
        if "template" not in document["spec"]:
            continue
        assert document["spec"]["replicas"] == 1
        labels = document["spec"]["template"]["metadata"]["labels"]
        assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
        (container,) = document["spec"]["template"]["spec"]["containers"]
        command = start_of(container["args"], {}, config=None, default_config=Path("/none")).words[0]
        assert command == "serve"
        assert container["livenessProbe"]["httpGet"]["path"] == LIVE.decode()
        assert container["readinessProbe"]["httpGet"]["path"] == READY.decode()
        names = {port["name"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} == names
        served.append(service["spec"]["selector"].items() <= labels.items())
    assert served == [True]
