"""The sign-in endpoint: gives a token to a program that knows a key, in the way of Microsoft Entra and AD FS."""
