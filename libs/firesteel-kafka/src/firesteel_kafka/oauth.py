"""Tokens for SASL's OAUTHBEARER: an endpoint, a file or a function gives them, or they are made here without signature.

The properties are those of Java's client (``sasl.oauthbearer.*``, ``sasl.jaas.config``) and of librdkafka.
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from firesteel.core.call_pool import CallPool
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProgramError
from firesteel.core.plugins import import_target
from firesteel.core.proxies import http_parts, opener_for

if TYPE_CHECKING:
    from aiokafka.abc import AbstractTokenProvider

__all__ = ["OAUTH", "OAuthSettings", "Token", "TokenRefusedError", "fetch_token", "oauth_settings", "provider"]

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
UNSIGNED: Final = "enable.sasl.oauthbearer.unsecure.jwt"
CONFIG: Final = "sasl.oauthbearer.config"
METHOD: Final = "sasl.oauthbearer.method"
CA_FILE: Final = "https.ca.location"
CALLBACK: Final = "sasl.login.callback.handler.class"
OAUTH: Final = frozenset(
    {ENDPOINT, CLIENT_ID, CLIENT_SECRET, SCOPE, EXTENSIONS, UNSIGNED, CONFIG, METHOD, CA_FILE, CALLBACK}
)
_USED_FRACTION: Final = 0.8
"""Part of its lifetime for which a token is used; then the next one is fetched. Java's client renews at 0.8, too."""
_UNKNOWN_LIFE_SECONDS: Final = 60.0
_TIMEOUT_SECONDS: Final = 10.0
_UNSIGNED_LIFE_SECONDS: Final = 3600
_TOKENS: Final = CallPool("tokens for Kafka")


class TokenRefusedError(Exception):
    """Endpoint, file or function gives no token, and asking again would not help."""


@dataclass(frozen=True)
class Token:
    """A token that a client shows to brokers.

    Attributes:
        text: the token itself; ``repr`` leaves it out.
        seconds: for how long the token is used; then the next one is fetched.
        extensions: SASL extensions that go to the broker with the token, besides those of the properties.
    """

    text: str = field(repr=False)
    seconds: float
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class OAuthSettings:
    """Where tokens come from.

    Attributes:
        endpoint: URL that gives tokens for client id and secret (``http``, ``https``), or file that holds one
            (``file:///path``); empty = tokens are made here without signature, or ``callback`` gives them.
        client_id, client_secret: credentials of the client at the endpoint; ``repr`` leaves the secret out.
        scope: scope to ask the endpoint for; empty = the endpoint's default.
        ca_file: certificates of authorities that the endpoint is checked with; empty = those of the system.
        extensions: SASL extensions that go to the broker with each token.
        subject: principal in tokens without signature.
        callback: ``module:function`` that gives tokens; then there is no endpoint.
        config: text that the function is called with.
    """

    endpoint: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    ca_file: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    subject: str = ""
    callback: str = ""
    config: str = field(default="", repr=False)


def oauth_settings(properties: Mapping[str, str]) -> OAuthSettings:
    """Read and check the properties of tokens.

    Args:
        properties: by the names of Java's client.

    Raises:
        ProgramError: a property is missing or not valid.
    """
    extensions = tuple(_pairs(EXTENSIONS, properties.get(EXTENSIONS, ""), ","))
    method = properties.get(METHOD, "").lower()
    if method not in ("", "default", "oidc"):
        raise ProgramError(f"Kafka: {METHOD} is default or oidc, not {method!r}")
    endpoint = properties.get(ENDPOINT, "")
    if CALLBACK in properties:
        return _of_callback(properties, extensions)
    if endpoint:
        if endpoint.lower().startswith("file:"):
            return OAuthSettings(endpoint, extensions=extensions)
        parts = http_parts(endpoint)
        if parts is None:
            raise ProgramError(f"Kafka: {ENDPOINT} is a URL that begins with https://, http:// or file:///")
        if parts.username is not None:
            raise ProgramError(f"Kafka: {ENDPOINT} holds no credentials; {CLIENT_ID} and {CLIENT_SECRET} do")
        for key in (CLIENT_ID, CLIENT_SECRET):
            if not properties.get(key):
                raise ProgramError(f"Kafka: tokens of an endpoint need {key} (or clientId and clientSecret in JAAS)")
        return OAuthSettings(
            endpoint, properties[CLIENT_ID], properties[CLIENT_SECRET], properties.get(SCOPE, ""),
            properties.get(CA_FILE, ""), extensions,
        )  # fmt: skip
    if properties.get(UNSIGNED, "false") == "true":
        claims = dict(_pairs(CONFIG, properties.get(CONFIG, ""), " "))
        subject = claims.pop("principal", "")
        scope = claims.pop("scope", "")
        if claims:
            raise ProgramError(f"Kafka: of {CONFIG} principal and scope are read, not {', '.join(sorted(claims))}")
        if not subject:
            raise ProgramError(f'Kafka: tokens that are not signed need {CONFIG}="principal=<name>"')
        return OAuthSettings("", scope=scope, extensions=extensions, subject=subject)
    raise ProgramError(
        f"Kafka: OAUTHBEARER needs {ENDPOINT} (https://..., or file:///path of a token), or {CALLBACK} "
        "(module:function)"
    )


def _of_callback(properties: Mapping[str, str], extensions: tuple[tuple[str, str], ...]) -> OAuthSettings:
    callback = properties[CALLBACK]
    module, _, name = callback.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and name.isidentifier()):
        raise ProgramError(
            f"Kafka: {CALLBACK} names a Python function as package.module:function, not {callback!r}; Java classes are "
            "not loaded"
        )
    if module == "__main__":
        raise ProgramError(f"Kafka: {CALLBACK} is imported in the slots, where {callback} is not; put it into a module")
    other_origins = sorted(
        key for key in (ENDPOINT, CLIENT_ID, CLIENT_SECRET, SCOPE, UNSIGNED, CA_FILE) if key in properties
    )
    if other_origins:
        raise ProgramError(
            f"Kafka: {CALLBACK} and {other_origins[0]} both say where tokens come from; leave one of them out"
        )
    return OAuthSettings("", extensions=extensions, callback=callback, config=properties.get(CONFIG, ""))


def _pairs(key: str, text: str, separator: str) -> list[tuple[str, str]]:
    """Names and values of a list ``name=value``."""
    pairs = []
    for pair in filter(None, (part.strip() for part in text.split(separator))):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ProgramError(f"Kafka: {key} is a list of name=value, and {pair!r} is none")
        pairs.append((name, value))
    return pairs


def fetch_token(settings: OAuthSettings, now_ms: Callable[[], int]) -> Token:
    """Get a token. Blocks.

    Args:
        settings: where the token comes from.
        now_ms: clock, in milliseconds since 1970.

    Raises:
        TokenRefusedError: the token is refused, or there is none.
        ConnectionError: the endpoint does not answer.
    """
    if settings.callback:
        return _of_function(settings, now_ms() / 1000)
    if not settings.endpoint:
        return Token(_unsigned(settings, now_ms() // 1000), _UNSIGNED_LIFE_SECONDS * _USED_FRACTION)
    parts = urllib.parse.urlsplit(settings.endpoint)
    if parts.scheme == "file":
        # For 0 s: the file is read again for each connection, because it may be renewed at any time.
        return Token(_of_file(urllib.request.url2pathname(parts.path)), 0.0)
    return _of_endpoint(settings)


def _import_callback(settings: OAuthSettings) -> Any:
    try:
        callback = import_target(settings.callback)
    except Exception as error:
        raise ProgramError(
            f"Kafka: {CALLBACK}={settings.callback} can't be imported here: {type(error).__name__}: {error}; the "
            "module has to be on the hosts, or to go with the program (add_python_file)"
        ) from error
    if not callable(callback):
        raise ProgramError(f"Kafka: {CALLBACK}={settings.callback} is {type(callback).__name__}, not a function")
    return callback


def _of_function(settings: OAuthSettings, now: float) -> Token:
    """Call the user's function as confluent-kafka calls ``oauth_cb``.

    The function takes the text of ``sasl.oauthbearer.config``, and returns the token, the second since 1970 at which it
    expires, and perhaps a principal (not used here) and a dict of extensions.
    """
    try:
        returned = _import_callback(settings)(settings.config)
    except OSError as error:
        raise ConnectionError(f"{settings.callback} raised {type(error).__name__}: {error}") from error
    except ProgramError:
        raise
    except Exception as error:
        raise TokenRefusedError(f"{settings.callback} raised {type(error).__name__}: {error}") from error
    try:
        token, expires_at, *optional = returned
        extensions = (optional[1] or {}) if len(optional) > 1 else {}
        pairs = tuple((str(key), str(value)) for key, value in extensions.items())
        seconds = (float(expires_at) - now) * _USED_FRACTION
    except (TypeError, ValueError, AttributeError) as error:
        raise TokenRefusedError(
            f"{settings.callback} returns a token and the second since 1970 when it ends, not {type(returned).__name__}"
        ) from error
    if not isinstance(token, str) or not token:
        raise TokenRefusedError(f"{settings.callback} returns {type(token).__name__} where a token's text is expected")
    if seconds <= 0:
        raise TokenRefusedError(
            f"{settings.callback} returns a token that has run out {-seconds / _USED_FRACTION:,.0f} s ago"
        )
    return Token(token, seconds, pairs)


def _of_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:
        raise TokenRefusedError(f"the token in {path} can't be read: {error}") from error
    if not token:
        raise TokenRefusedError(f"there is no token in {path}")
    return token


def _of_endpoint(settings: OAuthSettings) -> Token:
    form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    login = base64.b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
    request = urllib.request.Request(
        settings.endpoint,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {login}", "Accept": "application/json"},
    )
    endpoint = f"the token endpoint {settings.endpoint}"
    context = None
    if settings.endpoint.startswith("https"):
        try:
            context = ssl.create_default_context(cafile=settings.ca_file or None)
        except OSError as error:  # also of a file that holds no certificates
            raise TokenRefusedError(f"{CA_FILE}: {settings.ca_file} can't be read: {error}") from error
    try:
        with opener_for(settings.endpoint, context).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (408, 429) or error.code >= 500:
            raise ConnectionError(f"{endpoint} answers {error.code}") from None
        raise TokenRefusedError(f"{endpoint} gives no token to client {settings.client_id!r}: {error.code}") from None
    except ssl.SSLError as error:
        raise TokenRefusedError(f"{endpoint}: {error}") from error
    except (OSError, http.client.HTTPException) as error:  # also answers that break off
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise TokenRefusedError(f"{endpoint}: {reason}") from error
        raise ConnectionError(f"{endpoint} does not answer: {reason}") from error
    try:
        answer_fields = json.loads(body)
        token, lifetime = answer_fields["access_token"], float(answer_fields.get("expires_in", _UNKNOWN_LIFE_SECONDS))
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError(f"{endpoint} answers without an access_token") from error
    return Token(str(token), lifetime * _USED_FRACTION)


def _unsigned(settings: OAuthSettings, now: int) -> str:
    claims: dict[str, object] = {"sub": settings.subject, "iat": now, "exp": now + _UNSIGNED_LIFE_SECONDS}
    if settings.scope:
        claims["scope"] = settings.scope.split(",")
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return b".".join([*parts, b""]).decode()


@functools.lru_cache(maxsize=64)
def provider(settings: OAuthSettings) -> AbstractTokenProvider:
    """The token provider of aiokafka's clients; all clients of a process with the same settings share it."""
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import SaslAuthenticationFailed

    if settings.callback:
        _import_callback(settings)

    class SharedTokenProvider(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
        def __init__(self) -> None:
            self._lock = threading.Lock()
            self._token, self._renew_at = Token("", 0.0), 0.0

        async def token(self) -> str:
            return await _TOKENS.call(self._current)

        def _current(self) -> str:
            with self._lock:
                if not self._token.text or time.monotonic() >= self._renew_at:
                    try:
                        self._token = fetch_token(settings, SystemClock().epoch_ms)
                    except TokenRefusedError as error:
                        raise SaslAuthenticationFailed(str(error)) from error
                    self._renew_at = time.monotonic() + self._token.seconds
                return self._token.text

        def extensions(self) -> dict[str, str]:
            return dict(settings.extensions + self._token.extensions)

    return SharedTokenProvider()
