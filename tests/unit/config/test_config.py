from __future__ import annotations

import importlib
import json
import pickle
import pkgutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel import config
from firesteel.common import Configuration
from firesteel.config import Option, Secret, Settings, load_settings, options, parse_definitions, reference
from firesteel.config.keys import current_name, environment_form, flink_keys, is_flink_key, near
from firesteel.config.load import read_config_file, read_environment
from firesteel.config.option import INT, LIST, MAP, PORTS, SECRET, enum_of
from firesteel.config.values import parse_duration, parse_memory, show_memory
from firesteel.core.errors import ConfigurationError
from firesteel.core.option_texts import show_duration

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100 ms", timedelta(milliseconds=100)),
        ("100", timedelta(milliseconds=100)),
        (100, timedelta(milliseconds=100)),
        ("1min", timedelta(minutes=1)),
        ("2 h", timedelta(hours=2)),
        ("3 days", timedelta(days=3)),
        ("5 µs", timedelta(microseconds=5)),
        ("1500 ns", timedelta(microseconds=1)),
        ("PT0.1S", timedelta(milliseconds=100)),
        ("PT5M", timedelta(minutes=5)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("pt720h", timedelta(hours=720)),
        ("0", timedelta(0)),
        (timedelta(seconds=3), timedelta(seconds=3)),
    ],
)
def test_durations(text: Any, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "abc", "5 parsecs", "-1 s", "P", "PT", "1.5", True, "PT-1S", "1 2"])
def test_no_durations(text: Any) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64mb", 64 << 20), ("1 gb", 1 << 30), ("512", 512), (512, 512), ("10485760b", 10 << 20), ("32 KB", 32768)],
)
def test_memory_sizes(text: Any, expected: int) -> None:
    assert parse_memory(text) == expected


@pytest.mark.parametrize("text", ["", "mb", "-1", "1.5 gb", "3 xb", False])
def test_no_memory_sizes(text: Any) -> None:
    with pytest.raises(ValueError, match="a memory size such as"):
        parse_memory(text)


@given(st.timedeltas(timedelta(0), timedelta(days=10_000)), st.integers(0, 1 << 50))
def test_what_is_shown_is_read_back(duration: timedelta, size: int) -> None:
    assert parse_duration(show_duration(duration)) == duration
    assert parse_memory(show_memory(size)) == size


def test_defaults_are_flinks() -> None:
    settings = Settings()
    assert settings.get(options.EXECUTION_BUFFER_TIMEOUT_INTERVAL) == timedelta(milliseconds=100)
    assert settings.get(options.HEARTBEAT_INTERVAL) == timedelta(seconds=10)
    assert settings.get(options.HEARTBEAT_TIMEOUT) == timedelta(seconds=50)
    assert settings.get(options.SLOT_REQUEST_TIMEOUT) == timedelta(minutes=5)
    assert settings.get(options.REST_PORT) == 8081
    assert settings.get(options.TASK_CANCELLATION_TIMEOUT) == timedelta(seconds=180)
    assert settings.get(options.EXCHANGE_CHANNEL_WINDOW) == 1024 * 1024
    assert settings.is_set(options.REST_PORT) is False
    assert settings.source_of(options.REST_PORT) == "default"


def test_options_with_flinks_names_are_flinks() -> None:
    for option in options.ALL_OPTIONS:
        assert option.key.startswith("firesteel.") or is_flink_key(option.key), option.key
        assert option.doc.endswith(".")
        if option.default not in (None, {}):
            assert option.parse(option.default) == option.default
            assert option.parse(option.type.show(option.default)) == option.default
    assert len(options.OPTIONS) == len(options.ALL_OPTIONS) > 25


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("rest:\n  port: 1\nparallelism.default: 1\nheartbeat.timeout: 1 min\n")
    environ = {
        "FIRESTEEL_CONF_DIR": str(tmp_path),
        "FIRESTEEL_OPTION_REST_PORT": "2",
        "FIRESTEEL_OPTION_PARALLELISM_DEFAULT": "2",
        "FIRESTEEL_OPTION_TASKMANAGER_NUMBEROFTASKSLOTS": "5",
        "HOME": "/",
    }
    settings = load_settings(environ=environ, definitions=["rest.port=3"], program={"rest.port": 4})
    assert settings.get(options.REST_PORT) == 4
    assert settings.source_of(options.REST_PORT) == "program"
    assert settings.get(options.PARALLELISM_DEFAULT) == 2
    assert settings.get(options.TASKMANAGER_SLOTS) == 5
    assert settings.get(options.HEARTBEAT_TIMEOUT) == timedelta(minutes=1)
    assert "config.yaml" in settings.source_of(options.HEARTBEAT_TIMEOUT)
    over = settings.with_layer("operator", {"rest.port": 5, "parallelism.default": None})
    assert (over.get(options.REST_PORT), settings.get(options.REST_PORT)) == (5, 4)
    assert over.get(options.PARALLELISM_DEFAULT) == 2
    assert settings.check() == []


def test_wrong_values_name_key_value_place_and_form() -> None:
    settings = Settings({"rest.port": "eighty"}, "config.yaml")
    with pytest.raises(ConfigurationError, match=r"rest\.port = 'eighty' \(from config\.yaml\).*a whole number"):
        settings.get(options.REST_PORT)
    with pytest.raises(ConfigurationError, match="at most 65535"):
        Settings({"rest.port": 70_000}).get(options.REST_PORT)
    with pytest.raises(ConfigurationError, match="at least 1"):
        Settings({"parallelism.default": 0}).get(options.PARALLELISM_DEFAULT)
    with pytest.raises(ConfigurationError, match="STREAMING, BATCH, AUTOMATIC"):
        Settings({"execution.runtime-mode": "fast"}).get(options.EXECUTION_RUNTIME_MODE)
    with pytest.raises(ConfigurationError, match="true or false"):
        Settings({"pipeline.operator-chaining.enabled": "yes"}).get(options.PIPELINE_OPERATOR_CHAINING)


def test_check_refuses_own_unknown_keys_and_reports_all_faults() -> None:
    settings = Settings({"firesteel.batch.max-record": 1, "rest.port": "x", "heartbeat.interval": "y"})
    with pytest.raises(ConfigurationError) as caught:
        settings.check()
    text = str(caught.value)
    assert "firesteel.batch.max-record" in text
    assert "did you mean firesteel.batch.max-records" in text
    assert "rest.port" in text
    assert "heartbeat.interval" in text


def test_check_warns_once_for_each_kind() -> None:
    settings = Settings(
        {
            "taskmanager.memory.segment-size": "1728m",
            "pekko.ask.timeout": "10 s",
            "metrics.latency.granularity": "single",
            "parallelism.defaults": 3,
            "my.own.key": 1,
            "env.java.home": "/opt/java",
            "state.backend": "hashmap",
        }
    )
    renamed, unused, unknown = settings.check()
    assert "state.backend is now state.backend.type" in renamed
    for key in ("taskmanager.memory.segment-size", "pekko.ask.timeout", "metrics.latency.granularity"):
        assert key in unused
    assert "env.java.home" not in unused
    assert "parallelism.defaults (from program; did you mean parallelism.default" in unknown
    assert "my.own.key" in unknown


def test_old_names_become_todays() -> None:
    settings = Settings({"akka.ask.timeout": "1 s", "state.checkpoints.dir": "/a"})
    assert settings.keys() == {"pekko.ask.timeout", "execution.checkpointing.dir"}
    both = Settings({"state.checkpoints.dir": "/old", "execution.checkpointing.dir": "/new"})
    assert both.to_plain() == {"execution.checkpointing.dir": "/new"}
    assert Settings({"execution.checkpointing.dir": "/new", "state.checkpoints.dir": "/old"}) == both
    assert both.with_layer("x", {"state.checkpoints.dir": "/top"}).to_plain() == {"execution.checkpointing.dir": "/top"}
    assert current_name("jobstore.max-capacity") == "completed-application-store.max-capacity"
    assert current_name("rest.port") == "rest.port"


def test_fallback_keys_are_asked_after_the_key_itself() -> None:
    assert Settings({"env.java.home": "/f"}).get(options.JAVA_HOME) == "/f"
    assert Settings({"env.java.home": "/f", "firesteel.java.home": "/o"}).get(options.JAVA_HOME) == "/o"


def test_secrets_mask_themselves() -> None:
    option: Option[Secret | None] = Option("x.key", SECRET, None, "A secret.")
    secret = Settings({"x.key": "hunter2"}).get(option)
    assert secret is not None
    assert secret.reveal() == "hunter2"
    settings = Settings({"x.key": secret, "s3.secret-key": "swordfish", "rest.port": 1})
    for text in (repr(secret), str(secret), f"{secret}", repr(settings), str(settings.to_shown())):
        assert "hunter2" not in text
        assert "swordfish" not in text
    assert settings.to_shown()["rest.port"] == "1"
    assert settings.to_plain()["x.key"] == "hunter2"
    bad = Option("x.token", INT, 0, "A number.")
    with pytest.raises(ConfigurationError, match=r"\*{6}") as caught:
        Settings({"x.token": "hunter2"}).get(bad)
    assert "hunter2" not in str(caught.value)
    assert secret == Secret("hunter2") != Secret("other")


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.private-key", "ssl.private.key", "kafka.sasl.jaas.config", "sasl.jaas", "s3.access-key",
        "s3.access.key", "db.passwd", "DB_API_KEY", "fs.azure.account.key", "metrics.reporter.x.http-headers",
        "javax.net.ssl.keyStorePassword", "ssh.key.passphrase", "x.apikey", "metrics.reporter.dghttp.api-key",
        "pulsar.auth-params", "vault.service-key", "azure.account-key", "AWS_ACCESS_KEY_ID", "ssh_private_key",
        "registry.basic-auth.user-info", "basic.auth.user.info", "aws.credentials", "hub.connection-string",
    ],
)  # fmt: skip
def test_keys_that_hold_secrets_are_masked(key: str) -> None:
    assert Settings({key: "hunter2"}).to_shown() == {key: "******"}
    assert "hunter2" not in str(Configuration.from_dict({key: "hunter2"}))


def test_arguments_are_shown_without_the_secrets_in_them() -> None:
    words = [
        "--input", "a b", "--db-password", "hunter2", "--token=hunter2", "-Ddb.secret=hunter2", "password=hunter2",
        "jdbc:postgresql://ann:hunter2@db/x", "--use-token", "--verbose", "last",
    ]  # fmt: skip
    shown = Settings({"firesteel.application.arguments": json.dumps(words)}).to_shown()
    assert json.loads(shown["firesteel.application.arguments"]) == [
        "--input", "a b", "--db-password", "******", "--token=******", "-Ddb.secret=******", "password=******",
        "jdbc:postgresql://******@db/x", "--use-token", "--verbose", "last",
    ]  # fmt: skip
    opts = Settings({"env.java.opts.all": "-Xmx1g -Djavax.net.ssl.keyStorePassword=hunter2"}).to_shown()
    assert opts == {"env.java.opts.all": "-Xmx1g -Djavax.net.ssl.keyStorePassword=******"}


def test_a_protection_that_we_do_not_have_is_refused() -> None:
    for key in (
        "security.ssl.enabled", "security.ssl.internal.enabled", "security.ssl.rest.enabled",
        "security.ssl.rest.authentication-enabled", "blob.service.ssl.enabled", "historyserver.web.ssl.enabled",
        "pekko.ssl.enabled", "taskmanager.data.ssl.enabled",
    ):  # fmt: skip
        for text in ("true", " TRUE ", True):
            with pytest.raises(ConfigurationError, match=rf"{key} = true \(from program\) can't be honoured"):
                Settings({key: text}).check()
        assert key in "".join(Settings({key: "false"}).check())
    with pytest.raises(ConfigurationError, match=r"pekko\.ssl\.enabled = true"):
        Settings({"akka.ssl.enabled": "true"}).check()
    assert "security.ssl.keystore" in "".join(Settings({"security.ssl.keystore": "x"}).check())


def test_settings_travel_as_text() -> None:
    settings = Settings({"heartbeat.timeout": timedelta(seconds=90), "pipeline.object-reuse": True})
    plain = settings.to_plain()
    assert plain == {"heartbeat.timeout": "90 s", "pipeline.object-reuse": "true"}
    twin = Settings.from_plain(plain)
    assert twin == settings
    assert twin.get(options.HEARTBEAT_TIMEOUT) == timedelta(seconds=90)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_slices_hold_only_what_was_asked_for() -> None:
    settings = Settings({"rest.port": 1, "heartbeat.timeout": "1 s", "env.java.home": "/f"})
    part = settings.slice([options.REST_PORT, options.JAVA_HOME])
    assert part.keys() == {"rest.port", "env.java.home"}
    assert settings.under("heartbeat.") == {"timeout": "1 s"}


def test_settings_can_not_be_changed_through_what_they_hand_out() -> None:
    settings = Settings()
    settings.get(options.PIPELINE_GLOBAL_JOB_PARAMETERS)["a"] = "b"
    assert settings.get(options.PIPELINE_GLOBAL_JOB_PARAMETERS) == {}


def test_yaml_is_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "a:\n  b: yes\n  c: 012\nd.e: 12:30\nempty:\nnothing: ~\nlist: [x, y]\n"
        "pipeline.global-job-parameters:\n  p.q: 1\n  r: 2\n"
    )
    flat = read_config_file(path)
    assert flat == {
        "a.b": "yes",
        "a.c": "012",
        "d.e": "12:30",
        "list": ["x", "y"],
        "pipeline.global-job-parameters": {"p.q": "1", "r": "2"},
    }
    assert Settings(flat).get(options.PIPELINE_GLOBAL_JOB_PARAMETERS) == {"p.q": "1", "r": "2"}
    path.write_text("")
    assert read_config_file(path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "stands twice"),
        ("rest.port: 1\nrest:\n  port: 2\n", r"sets rest\.port twice"),
        ("- a\n", "no keys and values"),
        ("a: [\n", "not valid YAML"),
        ("[a]: 1\n", "must be text"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_config_file(path)
    assert str(path) in str(caught.value)


def test_tags_in_a_file_build_no_objects(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: !!python/object/apply:os.getcwd []\nb: !!int '3'\n")
    assert read_config_file(path) == {"a": [], "b": "3"}


def test_a_named_directory_without_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read"):
        load_settings(environ={"FIRESTEEL_CONF_DIR": str(tmp_path)})


def test_environment_variables_must_name_a_key() -> None:
    with pytest.raises(ConfigurationError, match="did you mean FIRESTEEL_OPTION_REST_PORT"):
        read_environment({"FIRESTEEL_OPTION_REST_PROT": "1"})
    assert read_environment({"FIRESTEEL_OTHER": "1"}) == {}


def test_environment_forms_are_unambiguous() -> None:
    by_form: dict[str, set[str]] = {}
    for key in flink_keys() | options.OPTIONS.keys():
        by_form.setdefault(environment_form(key), set()).add(key)
    assert [keys for keys in by_form.values() if len(keys) > 1 and keys & options.OPTIONS.keys()] == []


def test_definitions_of_the_command_line() -> None:
    assert parse_definitions(["a=1", "b = x=y ", "a=2"]) == {"a": "2", "b": "x=y"}
    for bad in ("a", "=1"):
        with pytest.raises(ConfigurationError, match="-Dkey=value"):
            parse_definitions([bad])


def test_ports_are_one_a_range_or_several() -> None:
    assert PORTS.parse(8081) == PORTS.parse("8081") == PORTS.parse(" 8081 ") == (8081,)
    assert PORTS.parse("9000, 8081-8083,8082") == PORTS.parse(["9000", "8081-8083"]) == (9000, 8081, 8082, 8083)
    for wrong in ("", "a", "8090-8081", "65536", "8081-", "8081;8082"):
        with pytest.raises(ValueError, match="ports such as 8081"):
            PORTS.parse(wrong)


def test_lists_maps_and_enums() -> None:
    assert LIST.parse("[a, 'b']") == LIST.parse("a;b") == LIST.parse(["a", "b"]) == ("a", "b")
    assert MAP.parse("{a: b, c: d}") == MAP.parse("a:b,c:d") == {"a": "b", "c": "d"}
    with pytest.raises(ValueError, match="a map such as"):
        MAP.parse("a,b")
    mode = enum_of("AT_LEAST_ONCE", "EXACTLY_ONCE")
    assert mode.parse("exactly-once") == "EXACTLY_ONCE"


def test_flinks_keys_are_known_by_name_and_pattern() -> None:
    assert is_flink_key("taskmanager.memory.process.size")
    assert is_flink_key("external-resource.gpu.amount")
    assert is_flink_key("metrics.reporter.prom.factory.class")
    assert not is_flink_key("metrics.reporter.")
    assert not is_flink_key("nothing.of.the.kind")
    assert near("rest.prot", flink_keys())[0] == "rest.port"
    assert len(flink_keys()) > 900


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "options.md").read_text("utf-8")
    assert page == reference.render(), "write it anew: python -m firesteel.config.reference > docs/options.md"
    assert [key for key in options.OPTIONS if f"`{key}`" not in page] == []


def test_restart_strategies_have_the_spellings_of_flink() -> None:
    read = {
        text: Settings({"restart-strategy.type": text}).get(options.RESTART_STRATEGY)
        for text in ("off", "disable", "NONE", "fixeddelay", "Fixed-Delay", "failurerate", "exponentialdelay")
    }
    names = ("none", "none", "none", "fixed-delay", "fixed-delay", "failure-rate", "exponential-delay")
    assert tuple(read.values()) == names
    with pytest.raises(ConfigurationError, match="none, fixed-delay, failure-rate, exponential-delay"):
        Settings({"restart-strategy.type": "sometimes"}).get(options.RESTART_STRATEGY)


def test_no_option_is_declared_twice() -> None:
    declared: dict[str, set[int]] = {}
    for module in pkgutil.iter_modules(config.__path__):
        if module.name.endswith("_options"):
            for value in vars(importlib.import_module(f"{config.__name__}.{module.name}")).values():
                if isinstance(value, Option):
                    declared.setdefault(value.key, set()).add(id(value))
    assert len(declared) > 200
    assert [key for key, values in declared.items() if len(values) > 1] == []
