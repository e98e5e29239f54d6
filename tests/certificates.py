"""A certificate for one name, made for a test, and both ends of TLS with it."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


class Certificates:
    """A self-signed certificate below a folder; `client` trusts it and nothing else."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "1", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
        subprocess.run([*command, "-keyout", self.key, "-out", self.certificate], check=True, capture_output=True)

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))
