"""Tokens: the key decides the algorithm, and every hostile token is rejected plainly."""

import asyncio
import base64
import hmac
import json
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from endpoints import answer, endpoint, raw
from support import DEADLINE

from scheduler.api import keys, tokens
from scheduler.api.identity import Role
from scheduler.api.problems import ServiceUnavailable, Unauthorized
from scheduler.api.services import make_services
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.settings import Settings, load

SECRET = "a secret of at least thirty-two bytes, for tests"
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def pem(private):
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def claims(**changed):
    made = {"sub": "ann", "exp": int(time.time()) + 60, "role": "operator"} | changed
    return {name: value for name, value in made.items() if value is not None}


def verifier(key=SECRET, **settings):
    return tokens.TokenVerifier(keys.StaticKey(keys.one_key(key)), **settings)


def b64(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def forged(head, body, signature=b""):
    return f"{b64(head)}.{b64(body)}.{b64(signature)}"


def test_a_valid_token_yields_an_identity():
    who = verifier().identify(jwt.encode(claims(tenant="acme"), SECRET, "HS256"), "192.0.2.7")
    assert (who.sub, who.role, who.tenant, who.address) == ("ann", Role.OPERATOR, "acme", "192.0.2.7")


@pytest.mark.parametrize("tenant", [None, "*"])
def test_without_a_tenant_it_is_for_all(tenant):
    assert verifier().identify(jwt.encode(claims(tenant=tenant), SECRET, "HS256")).all_tenants


@pytest.mark.parametrize("role", [None, "root", "", "Admin"])
def test_an_unknown_role_has_no_permissions(role):
    assert verifier().identify(jwt.encode(claims(role=role), SECRET, "HS256")).role is Role.NONE


@pytest.mark.parametrize(("private", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (ED, "EdDSA")])
def test_a_public_key_verifies_what_its_private_half_signed(private, algorithm):
    assert verifier(pem(private)).identify(jwt.encode(claims(), private, algorithm)).sub == "ann"


def confused(public):
    """A token signed with the text of the public key as if it were a secret."""
    signed = f"{b64({'alg': 'HS256', 'typ': 'JWT'})}.{b64(claims())}"
    return f"{signed}.{b64(hmac.digest(public.encode(), signed.encode(), 'sha256'))}"


NOW = int(time.time())
HOSTILE = {
    "none": forged({"alg": "none", "typ": "JWT"}, claims()),
    "None": forged({"alg": "None"}, claims()),
    "no algorithm": forged({"typ": "JWT"}, claims()),
    "algorithm is a list": forged({"alg": ["HS256"]}, claims()),
    "algorithm is null": forged({"alg": None}, claims()),
    "another secret": jwt.encode(claims(), "another secret of thirty-two bytes or more", "HS256"),
    "HS384": jwt.encode(claims(), SECRET + SECRET, "HS384"),
    "HS512 of the same secret": jwt.encode(claims(), SECRET * 2, "HS512"),
    "RS256": jwt.encode(claims(), RSA, "RS256"),
    "expired": jwt.encode(claims(exp=NOW - 120), SECRET, "HS256"),
    "not yet": jwt.encode(claims(nbf=NOW + 3600), SECRET, "HS256"),
    "issued in the future": jwt.encode(claims(iat=NOW + 3600), SECRET, "HS256"),
    "no exp": jwt.encode(claims(exp=None), SECRET, "HS256"),
    "exp is a string": jwt.encode(claims(exp="soon"), SECRET, "HS256"),
    "exp is infinite": forged({"alg": "HS256"}, b'{"sub":"ann","exp":1e999}'),
    "exp is infinite, and signed": jwt.encode(claims(exp=float("inf")), SECRET, "HS256"),
    "no sub": jwt.encode(claims(sub=None), SECRET, "HS256"),
    "empty sub": jwt.encode(claims(sub=""), SECRET, "HS256"),
    "long sub": jwt.encode(claims(sub="x" * 201), SECRET, "HS256"),
    "sub with a line break": jwt.encode(claims(sub="ann\nadmin"), SECRET, "HS256"),
    "role is a list": jwt.encode(claims(role=["admin"]), SECRET, "HS256"),
    "tenant is a list": jwt.encode(claims(tenant=["*"]), SECRET, "HS256"),
    "tenant is a wildcard of sorts": jwt.encode(claims(tenant="a*"), SECRET, "HS256"),
    # Not like a missing claim: a provider without tenants would issue tokens for all tenants.
    "tenant is null": jwt.encode(claims() | {"tenant": None}, SECRET, "HS256"),
    "tenant is empty": jwt.encode(claims(tenant=""), SECRET, "HS256"),
    "tampered": jwt.encode(claims(), SECRET, "HS256")[:-6] + "AAAAAA",
    "payload exchanged": ".".join([
        jwt.encode(claims(), SECRET, "HS256").split(".")[0], b64(claims(role="admin")),
        jwt.encode(claims(), SECRET, "HS256").split(".")[2],
    ]),
    "huge": "x" * 100_000,
    "huge claims": jwt.encode(claims(more="x" * 20_000), SECRET, "HS256"),
    "nested": forged(b'{"alg":' + b"[" * 3000 + b"]" * 3000 + b"}", claims()),
    "nested claims": forged({"alg": "HS256"}, b"[" * 3000 + b"]" * 3000),
    "claims are a list": forged({"alg": "HS256"}, [1]),
    "not three parts": "a.b",
    "five parts": "a.b.c.d.e",
    "no base64": "é.é.é",
    "empty": "..",
    "NUL": "\0.\0.\0",
    "kid is a path": jwt.encode(claims(), "x" * 40, "HS256", {"kid": "../../etc/passwd"}),
    "key in the header": jwt.encode(claims(), "x" * 40, "HS256", {"jwk": {"kty": "oct", "k": b64(b"x" * 40)}}),
    "crit": jwt.encode(claims(), SECRET, "HS256", {"crit": ["x"], "x": 1}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tokens_are_rejected(name):
    for found in (verifier(), verifier(pem(EC))):
        with pytest.raises(Unauthorized) as refused:
            found.identify(HOSTILE[name])
        assert refused.value.headers["WWW-Authenticate"].startswith("Bearer")
        assert SECRET not in refused.value.detail


@pytest.mark.parametrize("private", [RSA, EC, ED])
def test_a_public_key_is_never_taken_for_a_secret(private):
    with pytest.raises(Unauthorized):
        verifier(pem(private)).identify(confused(pem(private)))


def test_issuer_and_audience_are_checked_where_they_are_set():
    strict = verifier(issuer="https://id.example", audience="scheduler")
    good = claims(iss="https://id.example", aud="scheduler")
    assert strict.identify(jwt.encode(good, SECRET, "HS256")).sub == "ann"
    wrongs = ({"iss": "https://evil.example"}, {"aud": "another"}, {"iss": None}, {"aud": None}, {"aud": ["x"]})
    for wrong in wrongs:
        changed = {name: value for name, value in (good | wrong).items() if value is not None}
        with pytest.raises(Unauthorized):
            strict.identify(jwt.encode(changed, SECRET, "HS256"))
    assert verifier().identify(jwt.encode(good, SECRET, "HS256")).sub == "ann"


def test_clocks_may_differ_by_a_minute_and_no_more():
    now = int(time.time())
    assert verifier().identify(jwt.encode(claims(exp=now - 30), SECRET, "HS256")).sub == "ann"
    assert verifier().identify(jwt.encode(claims(nbf=now + 30), SECRET, "HS256")).sub == "ann"


def as_jwk(private, kid, **more):
    algorithm = jwt.algorithms.RSAAlgorithm if private is RSA else jwt.algorithms.ECAlgorithm
    return algorithm.to_jwk(private.public_key(), as_dict=True) | {"kid": kid, "use": "sig"} | more


class Published:
    """A key set that is rotated, and a clock."""

    def __init__(self, *entries):
        self.entries, self.reads, self.now, self.fails = list(entries), 0, 1000.0, False

    def read(self):
        self.reads += 1
        if self.fails:
            raise OSError("connection refused")
        return json.dumps({"keys": self.entries}).encode()

    def verifier(self):
        return tokens.TokenVerifier(keys.KeySet(self.read, lambda: self.now))


def test_keys_are_rotated_through_the_set():
    published = Published(as_jwk(RSA, "old"))
    found = published.verifier()
    old = jwt.encode(claims(), RSA, "RS256", {"kid": "old"})
    new = jwt.encode(claims(), EC, "ES256", {"kid": "new"})
    for _ in range(5):
        assert found.identify(old).sub == "ann"
    assert published.reads == 1
    with pytest.raises(Unauthorized):
        found.identify(new)
    assert published.reads == 1  # recently reloaded: unknown names do not cause reloads
    published.entries = [as_jwk(EC, "new")]
    published.now += keys.MIN_RELOAD_SECONDS
    assert found.identify(new).sub == "ann"
    with pytest.raises(Unauthorized):
        found.identify(old)


@pytest.mark.parametrize("bad", [
    b"what?\r\n\r\n", b"HTTP/1.1 two hundred\r\n\r\n", b"HTTP/1.1 500 Oh\r\n\r\n", b"",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 200 + b"\r\n",
])
def test_a_key_set_survives_bad_responses(monkeypatch, bad):
    monkeypatch.setattr(keys, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(keys, "MIN_RELOAD_SECONDS", 0.0)
    with endpoint() as server:
        url = server.on("/set", answer(200, json.dumps({"keys": [as_jwk(EC, "a")]}).encode()))
        found = keys.key_source(Settings(jwks_url=url))
        [known] = found.find("a", "ES256")
        server.on("/set", raw(bad))
        assert list(found.find("a", "ES256")) == [known]
        with pytest.raises(Unavailable):
            keys.key_source(Settings(jwks_url=url)).find("a", "ES256")
        assert len(server.calls("/set")) > 1


class Counting(keys.StaticKey):
    """A key, and a counter of its verifications."""

    asked = 0

    def find(self, kid, algorithm):
        self.asked += 1
        return super().find(kid, algorithm)


def test_a_token_that_was_found_good_is_verified_once_until_it_expires():
    now = time.time()
    key = Counting(keys.one_key(SECRET))
    clock = [now]
    token_verifier = tokens.TokenVerifier(key, clock=lambda: clock[0])
    token = jwt.encode(claims(exp=int(now) + 600, tenant="acme"), SECRET, "HS256")
    first = token_verifier.identify(token, "192.0.2.7")
    again = token_verifier.identify(token, "192.0.2.8")
    assert (again.sub, again.role, again.tenant, again.token, key.asked) == (
        first.sub, first.role, first.tenant, first.token, 1)
    assert (first.address, again.address) == ("192.0.2.7", "192.0.2.8")
    clock[0] = int(now) + 600 + tokens.LEEWAY_SECONDS  # as if it had expired: it is verified again
    token_verifier.identify(token)
    assert key.asked == 2
    clock[0] = now - 3600  # a clock that went backwards makes it look not valid yet
    token_verifier.identify(token)
    assert key.asked == 3


def test_a_bad_token_is_never_known():
    key = Counting(keys.one_key(SECRET))
    token_verifier = tokens.TokenVerifier(key)
    for token in (jwt.encode(claims(tenant=7), SECRET, "HS256"), jwt.encode(claims(sub=""), SECRET, "HS256"),
                  jwt.encode(claims(), "another " + SECRET, "HS256"), jwt.encode(claims(exp=1), SECRET, "HS256")):
        for _ in range(2):
            with pytest.raises(Unauthorized):
                token_verifier.identify(token)
            assert token_verifier.cached(token) is None
    assert key.asked == 8


def test_no_number_of_tokens_fills_the_memory(monkeypatch):
    monkeypatch.setattr(tokens, "_MAX_CACHED", 3)
    found = verifier()
    made = [jwt.encode(claims(sub=f"ann {n}"), SECRET, "HS256") for n in range(5)]
    assert [found.identify(each).sub for each in made] == [f"ann {n}" for n in range(5)]
    assert [found.cached(each) is not None for each in made] == [False, False, True, True, True]


def test_a_known_token_does_not_outlive_its_key():
    published = Published(as_jwk(RSA, "old"))
    found = published.verifier()
    old = jwt.encode(claims(), RSA, "RS256", {"kid": "old"})
    assert [found.identify(old).sub for _ in range(3)] == ["ann"] * 3
    assert found.cached(old)
    published.entries = [as_jwk(EC, "new")]
    published.now += 2 * keys.FRESH_SECONDS + 1
    assert found.cached(old) is None
    with pytest.raises(Unauthorized):
        found.identify(old)


def test_a_set_that_cannot_be_read_again_stays_in_use_and_one_never_read_is_a_503():
    published = Published(as_jwk(RSA, "a"))
    found = published.verifier()
    good = jwt.encode(claims(), RSA, "RS256", {"kid": "a"})
    published.fails = True
    with pytest.raises(ServiceUnavailable):
        found.identify(good)
    published.fails, published.now = False, published.now + 60
    assert found.identify(good).sub == "ann"
    published.fails, published.now = True, published.now + 3600
    assert found.identify(good).sub == "ann"


def test_a_set_has_no_secrets_no_encryption_keys_and_binds_each_key_to_its_algorithm():
    secret = {"kty": "oct", "k": b64(b"x" * 40), "kid": "s"}
    published = Published(secret, as_jwk(RSA, "e", use="enc"), as_jwk(RSA, "r", alg="RS512"), {"kty": "EC"}, 7)
    found = published.verifier()
    assert found.identify(jwt.encode(claims(), RSA, "RS512", {"kid": "r"})).sub == "ann"
    for token in (
        jwt.encode(claims(), RSA, "RS256", {"kid": "r"}), jwt.encode(claims(), RSA, "RS256", {"kid": "e"}),
        jwt.encode(claims(), b"x" * 40, "HS256", {"kid": "s"}), jwt.encode(claims(), EC, "ES256"),
    ):
        with pytest.raises(Unauthorized):
            found.identify(token)


@pytest.mark.parametrize("text", [
    b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": []}', b"[" * 100_000, b'{"keys": [{}]}',
])
def test_an_invalid_key_set_is_reported(text):
    with pytest.raises(ValueError, match=r"Key Set|public key"):
        keys.key_set(text)


@pytest.mark.parametrize("key", [
    "too short", "-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----",
    RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    pem(rsa.generate_private_key(65537, 1024)),
])
def test_an_unusable_key_is_reported_at_startup_without_its_value(key):
    with pytest.raises(Misconfigured) as told:
        keys.one_key(key)
    assert key not in str(told.value)


def test_there_must_be_one_source_of_keys(tmp_path):
    for settings in (Settings(), Settings(jwt_key=SECRET, jwks_url="https://id.example/keys"),
                     Settings(jwks_url="file:///etc/passwd"), Settings(jwks_file=str(tmp_path / "none"))):
        with pytest.raises(Misconfigured):
            keys.key_source(settings)
    (tmp_path / "set").write_text(json.dumps({"keys": [as_jwk(EC, "a")]}))
    token_verifier = tokens.TokenVerifier(keys.key_source(Settings(jwks_file=str(tmp_path / "set"))))
    assert token_verifier.identify(jwt.encode(claims(), EC, "ES256")).sub == "ann"
    with pytest.raises(Unavailable):
        keys.KeySet(lambda: b"{}").find(None, "RS256")


def test_a_token_is_made_with_the_secret_and_only_with_it():
    made = tokens.issue(SECRET, role="viewer", sub="bob", tenant="acme", lifetime=timedelta(hours=8), audience="a")
    who = verifier(audience="a").identify(made)
    assert (who.sub, who.role, who.tenant) == ("bob", Role.VIEWER, "acme")
    with pytest.raises(Misconfigured):
        tokens.issue(pem(EC), role="viewer", sub="bob", tenant=None, lifetime=timedelta(hours=1))


def der(private):
    return private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def certificate(private):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "id.example")])
    now = datetime.now(UTC)
    return (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(private.public_key())
            .serial_number(7).not_valid_before(now).not_valid_after(now + timedelta(days=1))
            .sign(private, hashes.SHA256()))


SSH = RSA.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
NO_SECRETS = {
    "PEM without its lines": "".join(pem(RSA).splitlines()[1:-1]),
    "PEM without its lines, folded": "\n".join(pem(EC).splitlines()[1:-1]),
    "DER in base64url": b64(der(RSA)),
    "DER of an Ed25519 key": base64.b64encode(der(ED)).decode(),
    "DER in hexadecimal digits": der(RSA).hex(),
    "PKCS 1": base64.b64encode(RSA.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)).decode(),
    "a private key": base64.b64encode(
        EC.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())).decode(),
    "a certificate": base64.b64encode(certificate(EC).public_bytes(Encoding.DER)).decode(),
    "a certificate with its lines": certificate(EC).public_bytes(Encoding.PEM).decode(),
    "PEM in base64": base64.b64encode(pem(RSA).encode()).decode(),
    "a JSON Web Key": json.dumps({"kty": "RSA", "n": "x" * 40, "e": "AQAB"}),
    "a JSON Web Key Set": json.dumps({"keys": [{"kty": "RSA", "n": "x" * 40, "e": "AQAB"}]}),
    "a JSON Web Key in base64": b64({"kty": "RSA", "n": "x" * 40, "e": "AQAB"}),
    "an SSH key": SSH,
    "an SSH key's bytes": SSH.split()[1],
    "one character": "x" * 40,
    "few characters": "abcabdabeabfabcabdabeabfacbadbaebafb",
    "a repeated word": "changeme" * 5,
    "digits in a row": "1234567890" * 4,
}


@pytest.mark.parametrize("name", NO_SECRETS)
def test_weak_or_public_secrets_are_rejected(name):
    key = NO_SECRETS[name]
    with pytest.raises(Misconfigured) as told:
        keys.one_key(key)
    assert "SCHEDULER_JWT_KEY" in str(told.value)
    assert key not in str(told.value)


@pytest.mark.parametrize("make", [
    lambda: SECRET, lambda: secrets.token_hex(16), lambda: secrets.token_urlsafe(32),
    lambda: base64.b64encode(secrets.token_bytes(48)).decode(), lambda: "0123456789abcdef" * 2,
    lambda: "correct horse battery staple, and then some",
], ids=("ours", "hex", "urlsafe", "base64", "digits", "words"))
def test_a_strong_secret_is_accepted(make):
    key = make()
    assert keys.one_key(key).value == key.encode()


def test_token_encodings_share_one_rate_limit():
    found = verifier(pem(EC))
    token = jwt.encode(claims(), EC, "ES256")
    head, signature = token.rsplit(".", 1)
    read = base64.urlsafe_b64decode(signature + "==")
    r, s = int.from_bytes(read[:32], "big"), int.from_bytes(read[32:], "big")
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    turned = f"{head}.{b64(r.to_bytes(32, 'big') + (order - s).to_bytes(32, 'big'))}"  # as good as the first
    counted = {found.identify(each).token for each in (token, token + "=", token + "====", turned)}
    assert len(counted) == 1
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = token[:-1] + last[last.index(token[-1]) + 1]  # unused bits
    for spelling in (token + "!", token + "\n", other, f"{head}.{signature[:4]}.{signature[4:]}"):
        with pytest.raises(Unauthorized):
            found.identify(spelling)


YEAR = 366 * 86_400


@pytest.mark.parametrize(("made", "good"), [
    ({"exp": NOW + YEAR}, True), ({"exp": NOW + YEAR, "iat": NOW}, True), ({"exp": NOW + 400 * 86_400}, True),
    ({"exp": NOW + 402 * 86_400}, False), ({"exp": NOW + 86_400, "iat": NOW - 402 * 86_400}, False),
    ({"exp": NOW + 86_400, "iat": NOW - YEAR}, True), ({"exp": 2**40}, False),
])
def test_token_lifetimes_are_limited(made, good):
    token = jwt.encode(claims(**made), SECRET, "HS256")
    if good:
        assert verifier().identify(token).sub == "ann"
        return
    with pytest.raises(Unauthorized, match="400 days"):
        verifier().identify(token)


def test_tokens_issued_before_not_before_are_rejected():
    cut = load({"SCHEDULER_JWT_NOT_BEFORE": "2026-11-18T08:00:00+01:00"}).jwt_not_before
    found = verifier(not_before=cut, clock=lambda: cut + 60)
    for issued, good in ((0, True), (5, True), (-1, False), (-3600, False), (None, False)):
        iat = None if issued is None else int(cut) + issued
        token = jwt.encode(claims(iat=iat, exp=NOW + 3600), SECRET, "HS256")
        if good:
            assert found.identify(token).sub == "ann"
            continue
        with pytest.raises(Unauthorized, match="SCHEDULER_JWT_NOT_BEFORE"):
            found.identify(token)
    for text in ("yesterday", "2026-11-18", "2026-11-18T08:00:00"):
        with pytest.raises(Misconfigured, match="SCHEDULER_JWT_NOT_BEFORE"):
            load({"SCHEDULER_JWT_NOT_BEFORE": text})


@pytest.mark.parametrize(("url", "good"), [
    ("https://id.example/keys", True), ("http://127.0.0.1:9/keys", True), ("http://[::1]/keys", True),
    ("http://localhost/keys", True), ("http://id.example/keys", False), ("http://10.0.0.1/keys", False),
    ("http://localhost.example/keys", False), ("https://", False), ("http://127.0.0.1@id.example/keys", False),
])
def test_keys_are_fetched_over_tls_or_loopback(url, good):
    if good:
        assert keys.key_source(Settings(jwks_url=url))
        return
    with pytest.raises(Misconfigured, match="https"):
        keys.key_source(Settings(jwks_url=url))


def test_a_redirect_leads_to_no_other_place_either():
    with endpoint() as server:
        url = server.on("/set", answer(302, Location="http://id.example/keys"))
        with pytest.raises(Unavailable, match="not https"):
            keys.key_source(Settings(jwks_url=url)).find("a", "ES256")


def test_unknown_key_ids_delay_no_other_token():
    release = threading.Event()
    good = answer(200, json.dumps({"keys": [as_jwk(EC, "a")]}).encode())

    def hang(connection, received):
        release.wait(DEADLINE)
        good(connection, received)

    async def check(url):
        served = make_services(Settings(jwks_url=url))
        assert (await served.identify(jwt.encode(claims(), EC, "ES256", {"kid": "a"}))).sub == "ann"
        server.on("/set", hang)
        found = served.tokens._keys
        found._tried_at -= keys.MIN_RELOAD_SECONDS
        made = [jwt.encode(claims(), EC, "ES256", {"kid": f"unknown {n}"}) for n in range(60)]
        unknown = [asyncio.create_task(served.identify(each)) for each in made]
        await asyncio.sleep(0)
        known = jwt.encode(claims(sub="bob"), EC, "ES256", {"kid": "a"})
        async with asyncio.timeout(DEADLINE / 2):
            assert (await served.identify(known)).sub == "bob"
        release.set()
        ended = await asyncio.gather(*unknown, return_exceptions=True)
        assert {type(each) for each in ended} == {Unauthorized, ServiceUnavailable}
        return len(server.calls("/set"))

    with endpoint() as server:
        url = server.on("/set", good)
        try:
            assert asyncio.run(check(url)) == 2
        finally:
            release.set()


def test_an_old_set_is_read_again_without_keeping_anyone_waiting():
    published, later = Published(as_jwk(RSA, "a")), []
    token_verifier = tokens.TokenVerifier(keys.KeySet(published.read, lambda: published.now, later.append))
    token = jwt.encode(claims(), RSA, "RS256", {"kid": "a"})
    assert token_verifier.identify(token).sub == "ann"
    published.now += keys.FRESH_SECONDS + 1
    assert not token_verifier.may_wait(token)
    assert (token_verifier.identify(token).sub, published.reads, len(later)) == ("ann", 1, 1)
    later.pop()()
    assert (token_verifier.identify(token).sub, published.reads, len(later)) == ("ann", 2, 0)
