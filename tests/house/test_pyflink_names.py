"""docs/pyflink-names.md is what the classes say."""

from __future__ import annotations

from tools import pyflink_names as names


def test_the_page_is_rendered_from_the_classes() -> None:
    hint = "run: .venv/bin/python tools/pyflink_names.py > docs/pyflink-names.md"
    assert names.PAGE.read_text() == names.render(), hint


def test_the_table_of_missing_names_is_rendered_too() -> None:
    command = (
        "run: .venv/bin/python tools/pyflink_names.py --table > libs/firesteel/src/firesteel/core/pyflink_names.tsv"
    )
    assert names.TABLE.read_text() == names.render_table(), command


def test_the_data_holds_the_whole_api() -> None:
    pyflink_names = names.read_names()
    assert len(pyflink_names) > 1500
    assert len({(n.module, n.owner, n.kind, n.name) for n in pyflink_names}) == len(pyflink_names)


def test_what_it_says_can_be_false() -> None:
    environment = "pyflink.datastream.stream_execution_environment", "StreamExecutionEnvironment"

    def status(kind: str, name: str, parameters: str = "") -> str:
        return names.judge(names.Name(*environment, kind, name, parameters)).status

    assert status("method", "set_parallelism", "parallelism") == names.SAME
    assert status("method", "set_parallelism", "degree") == names.DIFFERS
    assert status("method", "set_parallelism") == names.DIFFERS
    assert status("method", "add_jars", "*jars_path") == names.NO_EFFECT
    assert status("method", "register_cached_file", "file_path, name") == names.REFUSED
    assert status("method", "no_such_method") == names.LATER


def test_settings_are_what_they_turn_out_to_be() -> None:
    def verdict(module: str, owner: str, kind: str, name: str, parameters: str = "") -> names.Verdict:
        return names.judge(names.Name(f"pyflink.datastream.{module}", owner, kind, name, parameters))

    batch = verdict("execution_mode", "RuntimeExecutionMode", "value", "BATCH")
    assert batch.status == names.SAME
    assert verdict("execution_mode", "RuntimeExecutionMode", "value", "STREAMING").status == names.SAME
    forced = verdict(
        "checkpoint_config",
        "CheckpointConfig",
        "method",
        "set_force_unaligned_checkpoints",
        "force_unaligned_checkpoints=True",
    )
    assert forced.status == names.NO_EFFECT
    assert "all partitioners take part" in forced.note
    assert verdict("state_backend", "EmbeddedRocksDBStateBackend", "class", "").status == names.SAME
    assert verdict("slot_sharing_group", "SlotSharingGroup.Builder", "method", "set_cpu_cores", "cpu_cores").status == (
        names.LATER
    )
