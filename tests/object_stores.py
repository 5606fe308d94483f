"""Object stores for tests: how to reach a server with the protocol of S3 or Azure Blob Storage."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The well-known key of Azurite."""


@dataclass(frozen=True)
class Server:
    """A server with one bucket, or container, named 'ledgers'."""

    kind: str
    port: int

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that a process needs to reach the server."""
        if self.kind == "s3":
            return {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": "eu-central-1",
            }
        return {
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }

    def new_location(self) -> str:
        """Return the URI of a new folder."""
        folder = f"tests/{uuid.uuid4().hex}"
        if self.kind == "s3":
            return f"s3://ledgers/{folder}"
        return f"abfss://ledgers@{ACCOUNT}.dfs.core.windows.net/{folder}"

    def behind(self, port: int) -> Server:
        """Return the same server, reached through another port."""
        return replace(self, port=port)
