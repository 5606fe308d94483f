"""What tools read before they sign in: where to sign in, and which other addresses there are. All of it is public."""

from __future__ import annotations

from typing import Any

from oncebus.protocols.management.writing import TENANT

Document = dict[str, Any]


def openid_configuration(base: str, authority: str) -> Document:
    """Return what a library for OpenID reads about an authority, such as `adfs` or the name of a tenant."""
    issuer = f"{base}/{authority}"
    version = "oauth2" if authority.lower() == "adfs" else "oauth2/v2.0"
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/{version}/authorize",
        "token_endpoint": f"{issuer}/{version}/token",
        "jwks_uri": f"{issuer}/discovery/keys",
        "response_types_supported": ["token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "grant_types_supported": ["client_credentials"],
        "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
    }


def key_set() -> Document:
    """Return the public keys of our tokens: none, because only the broker itself verifies them."""
    return {"keys": []}


def metadata(base: str, host: str) -> Document:
    """Return the addresses of a cloud, as Azure has them at `/metadata/endpoints`."""
    suffixes = (
        "acrLoginServer",
        "attestationEndpoint",
        "azureDataLakeAnalyticsCatalogAndJob",
        "azureDataLakeStoreFileSystem",
        "keyVaultDns",
        "mhsmDns",
        "mysqlServerEndpoint",
        "postgresqlServerEndpoint",
        "mariadbServerEndpoint",
        "sqlServerHostname",
        "storage",
        "storageSyncEndpointSuffix",
        "synapseAnalytics",
    )
    others = (
        "activeDirectoryDataLake",
        "appInsightsResourceId",
        "appInsightsTelemetryChannelResourceId",
        "attestationResourceId",
        "azmirrorStorageAccountResourceId",
        "batch",
        "gallery",
        "graph",
        "graphAudience",
        "logAnalyticsResourceId",
        "media",
        "microsoftGraphResourceId",
        "ossrdbmsResourceId",
        "portal",
        "sqlManagement",
        "synapseAnalyticsResourceId",
        "vmImageAliasDoc",
    )
    return {
        "name": "Oncebus",
        "resourceManager": base,
        "authentication": {
            "loginEndpoint": f"{base}/adfs",
            "audiences": [base],
            "tenant": TENANT,
            "identityProvider": "AAD",
        },
        # Services that are not here. Tools insist on an address for each; nothing else answers at this one.
        **dict.fromkeys(others, base),
        "suffixes": dict.fromkeys(suffixes, host),
    }
