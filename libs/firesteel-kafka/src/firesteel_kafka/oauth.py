"""Tokens for SASL's OAUTHBEARER: of an endpoint, from a file, of a function, or made here and not signed.

The names and what they mean are those of Java's client (``sasl.oauthbearer.*``, ``sasl.jaas.config``) and librdkafka's.
"""

from __future__ import annotations

import base64
import functools
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
from firesteel.core.proxies import opener_for

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
_KEPT_PART: Final = 0.8
"""Of its life-time a token is used for so much; then another one is asked for."""
_UNKNOWN_LIFE_SECONDS: Final = 60.0
_TIMEOUT_SECONDS: Final = 10.0
_UNSIGNED_LIFE_SECONDS: Final = 3600
_TOKENS: Final = CallPool("tokens for Kafka")


class TokenRefusedError(Exception):
    """Endpoint, file or function gives no token, and would not if it were asked again."""


@dataclass(frozen=True)
class Token:
    """What lets a client in.

    Attributes:
        text: of it; shows itself nowhere.
        seconds: for how long it may be used; then another one is asked for.
        extensions: pairs that go to the broker beside it, besides those of the properties.
    """

    text: str = field(repr=False)
    seconds: float
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class OAuthSettings:
    """Where tokens come from.

    Attributes:
        endpoint: gives them for id and secret (``http``, ``https``), or is a file that holds one (``file:///path``);
            empty = they are made here, and not signed.
        client_id, client_secret: of the client; the secret shows itself nowhere.
        scope: that is asked for; empty = the endpoint's own.
        ca_file: certificates that the endpoint's is signed by; empty = those of the system.
        extensions: pairs that go to the broker beside the token.
        subject: of tokens that are not signed.
        callback: ``module:function`` that gives them; then there is no endpoint.
        config: what the function is called with.
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
    """What the properties say.

    Args:
        properties: by Java's names.

    Raises:
        ProgramError: something is missing, or not valid.
    """
    extensions = tuple(_pairs(EXTENSIONS, properties.get(EXTENSIONS, ""), ","))
    method = properties.get(METHOD, "").lower()
    if method not in ("", "default", "oidc"):
        raise ProgramError(f"Kafka: {METHOD} is default or oidc, not {method!r}")
    endpoint = properties.get(ENDPOINT, "")
    if CALLBACK in properties:
        return _of_callback(properties, extensions)
    if endpoint:
        parts = urllib.parse.urlsplit(endpoint)
        if parts.scheme == "file":
            return OAuthSettings(endpoint, extensions=extensions)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProgramError(f"Kafka: {ENDPOINT} begins with https://, http:// or file:///")
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
    more = sorted(key for key in (ENDPOINT, CLIENT_ID, CLIENT_SECRET, SCOPE, UNSIGNED, CA_FILE) if key in properties)
    if more:
        raise ProgramError(f"Kafka: {CALLBACK} and {more[0]} both say where tokens come from; leave one of them out")
    return OAuthSettings("", extensions=extensions, callback=callback, config=properties.get(CONFIG, ""))


def _pairs(key: str, text: str, separator: str) -> list[tuple[str, str]]:
    found = []
    for pair in filter(None, (one.strip() for one in text.split(separator))):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ProgramError(f"Kafka: {key} is a list of name=value, and {pair!r} is none")
        found.append((name, value))
    return found


def fetch_token(settings: OAuthSettings, now_ms: Callable[[], int]) -> Token:
    """A token. Waits.

    Args:
        settings: where it comes from.
        now_ms: milliseconds since 1970.

    Raises:
        TokenRefusedError: it is refused, or there is none.
        ConnectionError: the endpoint does not answer.
    """
    if settings.callback:
        return _of_function(settings, now_ms() / 1000)
    if not settings.endpoint:
        return Token(_unsigned(settings, now_ms() // 1000), _UNSIGNED_LIFE_SECONDS * _KEPT_PART)
    parts = urllib.parse.urlsplit(settings.endpoint)
    if parts.scheme == "file":
        return Token(_of_file(urllib.request.url2pathname(parts.path)), 0.0)  # whoever renews it writes the file anew
    return _of_endpoint(settings)


def _function(settings: OAuthSettings) -> Any:
    try:
        found = import_target(settings.callback)
    except Exception as error:
        raise ProgramError(
            f"Kafka: {CALLBACK}={settings.callback} can't be imported here: {type(error).__name__}: {error}; the "
            "module has to be on the hosts, or to go with the program (add_python_file)"
        ) from error
    if not callable(found):
        raise ProgramError(f"Kafka: {CALLBACK}={settings.callback} is {type(found).__name__}, not a function")
    return found


def _of_function(settings: OAuthSettings, now: float) -> Token:
    """Called as ``oauth_cb`` of confluent-kafka: a text -> token, its end, and perhaps principal and extensions."""
    try:
        given = _function(settings)(settings.config)
    except OSError as error:
        raise ConnectionError(f"{settings.callback} raised {type(error).__name__}: {error}") from error
    except ProgramError:
        raise
    except Exception as error:
        raise TokenRefusedError(f"{settings.callback} raised {type(error).__name__}: {error}") from error
    try:
        token, until, *more = given
        pairs = tuple((str(key), str(value)) for key, value in (more[1] or {}).items()) if len(more) > 1 else ()
        seconds = (float(until) - now) * _KEPT_PART
    except (TypeError, ValueError, AttributeError) as error:
        raise TokenRefusedError(
            f"{settings.callback} returns a token and the second since 1970 when it ends, not {type(given).__name__}"
        ) from error
    if not isinstance(token, str) or not token:
        raise TokenRefusedError(f"{settings.callback} returns {type(token).__name__} where a token's text is expected")
    if seconds <= 0:
        raise TokenRefusedError(
            f"{settings.callback} returns a token that has run out {-seconds / _KEPT_PART:,.0f} s ago"
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
    where = f"the token endpoint {settings.endpoint}"
    try:
        context = None
        if settings.endpoint.startswith("https"):
            context = ssl.create_default_context(cafile=settings.ca_file or None)
        with opener_for(settings.endpoint, context).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (408, 429) or error.code >= 500:
            raise ConnectionError(f"{where} answers {error.code}") from None
        raise TokenRefusedError(f"{where} gives no token to client {settings.client_id!r}: {error.code}") from None
    except ssl.SSLError as error:
        raise TokenRefusedError(f"{where}: {error}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise TokenRefusedError(f"{where}: {reason}") from error
        raise ConnectionError(f"{where} does not answer: {reason}") from error
    try:
        given = json.loads(body)
        token, life = given["access_token"], float(given.get("expires_in", _UNKNOWN_LIFE_SECONDS))
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError(f"{where} answers without an access_token") from error
    return Token(str(token), life * _KEPT_PART)


def _unsigned(settings: OAuthSettings, now: int) -> str:
    claims: dict[str, object] = {"sub": settings.subject, "iat": now, "exp": now + _UNSIGNED_LIFE_SECONDS}
    if settings.scope:
        claims["scope"] = settings.scope.split(",")
    parts = (base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in ({"alg": "none"}, claims))
    return b".".join([*parts, b""]).decode()


@functools.lru_cache(maxsize=64)
def provider(settings: OAuthSettings) -> AbstractTokenProvider:
    """What gives aiokafka's clients tokens: all clients of a process with the same settings share one."""
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import SaslAuthenticationFailed

    if settings.callback:
        _function(settings)

    class Provider(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
        def __init__(self) -> None:
            self._lock = threading.Lock()
            self._token, self._until = Token("", 0.0), 0.0

        async def token(self) -> str:
            return await _TOKENS.call(self._current)

        def _current(self) -> str:
            with self._lock:
                if not self._token.text or time.monotonic() >= self._until:
                    try:
                        self._token = fetch_token(settings, SystemClock().epoch_ms)
                    except TokenRefusedError as error:
                        raise SaslAuthenticationFailed(str(error)) from error
                    self._until = time.monotonic() + self._token.seconds
                return self._token.text

        def extensions(self) -> dict[str, str]:
            return dict(settings.extensions + self._token.extensions)

    return Provider()
