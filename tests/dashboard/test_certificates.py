from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.certificates import Certificates, certificates
from dashboard.fanout import follow
from dashboard.feeds import Feeds
from dashboard.poller import Poller
from dashboard.server import list_models
from dashboard.settings import Server
from tests.dashboard.admin_server import KEY, AdminServer, admin_server
from tests.dashboard.foreign_server import ForeignServer

_MINUTE = 60.0


@pytest.fixture(autouse=True)
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only authority that is trusted, and a server's certificate. Its key: ``bundle.key``."""
    found = tmp_path / "bundle.pem"
    _write_certificate(found)
    monkeypatch.setenv("SSL_CERT_FILE", str(found))
    monkeypatch.setattr(certificates, "_context", None)
    return found


def _write_certificate(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test's server")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _behind_tls(server: AdminServer, certificate: Path) -> str:
    """Have ``server`` speak TLS; return its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server.url.replace("http:", "https:")


async def test_a_server_is_trusted_whose_authority_the_environment_names(bundle: Path) -> None:
    with admin_server() as server:
        url = _behind_tls(server, bundle)
        assert AdminClient(url, KEY).overview()[0].running == 3
        known = Feeds([Server("http://a:1", url)], KEY)
        assert b"start" in await known.history(0, 5)
        messages = follow([known.fanout(0, kv=None)], 60)
        assert b"overview" in await anext(messages)
        await messages.aclose()


async def test_no_other_server_is_trusted(tmp_path: Path) -> None:
    _write_certificate(tmp_path / "other.pem")
    with admin_server() as server:
        url = _behind_tls(server, tmp_path / "other.pem")
        with pytest.raises(AdminRefusalError, match="Could not connect"):
            AdminClient(url, KEY).overview()
        with pytest.raises(httpx.ConnectError, match="self-signed"):
            await Feeds([Server("http://a:1", url)], KEY).history(0, 5)
        assert server.asked == []


async def test_they_are_read_once_for_all_connections(bundle: Path, foreign: ForeignServer) -> None:
    foreign.replies["/v1/models"] = lambda exchange: exchange.answer(200, '{"data": []}')
    certificates()
    bundle.unlink()
    with pytest.raises(FileNotFoundError):
        httpx.Client()  # as would fail whatever reads it now
    with admin_server() as server:
        known = Feeds([Server(foreign.url, server.url)], KEY)
        assert await known.history(0, 5)
        assert await known.kv_times(0, 0)
        messages = follow([known.fanout(0, kv=0)], 60)
        assert b"blocks" in await anext(messages)
        await messages.aclose()
        assert AdminClient(server.url, KEY).overview()[0].running == 3
    assert list_models(foreign.url, "") == []
    poller = Poller(foreign.url)
    assert "/metrics returned 404" in poller.view(wait=10.0).problem
    poller.close()


def test_a_bundle_that_is_replaced_is_read_within_minutes(bundle: Path) -> None:
    now = 0.0
    found = Certificates(lambda: now)
    found()
    _write_certificate(bundle)
    with admin_server() as server:
        url = _behind_tls(server, bundle)
        now = 4 * _MINUTE
        with pytest.raises(httpx.ConnectError, match="self-signed"):
            httpx.get(url, verify=found())
        now = 6 * _MINUTE
        assert httpx.get(url, verify=found()).status_code == 401


def test_a_bundle_that_cannot_be_read_again_leaves_the_last_one_in_use(bundle: Path) -> None:
    now = 0.0
    found = Certificates(lambda: now)
    first = found()
    for broken in ("not a certificate", None):
        now += 6 * _MINUTE
        bundle.unlink() if broken is None else bundle.write_text(broken)
        assert found() is first
