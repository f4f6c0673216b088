"""ML scoring: how likely each flight is to arrive late, by a model that each subtask loads once.

python examples/recipes/ml_scoring.py --output /tmp/scores
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from firesteel.common import Duration, Encoder, TypeInformation, Types, WatermarkStrategy
from firesteel.datastream import (
    DataStream,
    MapFunction,
    OutputTag,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    MalformedPolicy,
    MalformedToSideOutput,
    RollingPolicy,
)
from firesteel.datastream.formats.csv import CsvReaderFormat, CsvSchema
from firesteel.datastream.formats.json import JsonRowSerializationSchema
from firesteel.expressions import col

DATA = Path(__file__).resolve().parents[1] / "data"
FEATURES = ["dep_delay", "distance", "hour"]
CSV = (
    CsvSchema.builder()
    .add_string_column("carrier")
    .add_number_column("flight", Types.INT())
    .add_number_column("dep_delay", Types.DOUBLE())
    .add_number_column("distance", Types.DOUBLE())
    .add_number_column("hour", Types.DOUBLE())
    .set_use_header()
    .set_null_value("NA")
    .build()
)
SCORE = Types.ROW_NAMED(
    ["carrier", "flight", "p_late", "model"], [Types.STRING(), Types.INT(), Types.DOUBLE(), Types.STRING()]
)
BAD = OutputTag("bad")


class Score(MapFunction[pa.RecordBatch, pa.RecordBatch]):
    """Batches of flights -> batches of scores: the model sees thousands of rows at once."""

    def __init__(self, model: str) -> None:
        self.path = model  # a path and no model: the program is small, and a new model is a new file

    def open(self, runtime_context: RuntimeContext) -> None:
        # With scikit-learn: self.model = joblib.load(self.path)
        self.model = json.loads(Path(self.path).read_text())
        if self.model["features"] != FEATURES:  # a model of other columns would give numbers, too
            raise ValueError(f"{self.path} takes {self.model['features']}, and this program gives {FEATURES}")
        self.mean, self.scale, self.weights = (np.array(self.model[name]) for name in ("mean", "scale", "weights"))

    def map(self, value: pa.RecordBatch) -> pa.RecordBatch:
        features = np.column_stack([value[name].to_numpy(zero_copy_only=False) for name in FEATURES])
        # With scikit-learn: late = self.model.predict_proba(features)[:, 1]
        late = 1 / (1 + np.exp(-((features - self.mean) / self.scale @ self.weights + self.model["bias"])))
        version = pa.array([self.model["version"]] * value.num_rows)
        return pa.RecordBatch.from_arrays(
            [value["carrier"], value["flight"], pa.array(np.round(late, 4)), version], SCORE.get_field_names()
        )


def write(stream: DataStream, folder: Path, encoder: Encoder) -> None:
    """Lines of text, each of which is there once, whatever dies meanwhile."""
    sink = FileSink.for_row_format(str(folder), encoder)
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())  # a file is visible at each
    stream.sink_to(sink.build()).uid(f"{folder.name} files")


def as_json(row_type: TypeInformation) -> Encoder:
    return Encoder.of_schema(JsonRowSerializationSchema.builder().with_type_info(row_type).build())


def build(env: StreamExecutionEnvironment, source: str, model: str, output: Path, *, follow: bool = False) -> None:
    """The program."""
    files = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(CSV), source)
    files.on_malformed(MalformedPolicy.EMIT)  # with SKIP they are counted and logged, and flights stay columns
    if follow:
        files.monitor_continuously(Duration.of_seconds(1))
    read = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "flights").uid("flights")
    flights = read.process(MalformedToSideOutput(BAD), CSV.row_type)
    complete = col("dep_delay").is_not_null() & col("distance").is_not_null() & col("hour").is_not_null()
    scores = flights.filter(complete).map_batches(Score(model), SCORE).name("score")
    write(scores, output / "scores", as_json(SCORE))
    write(flights.filter(~complete), output / "unscored", as_json(CSV.row_type))
    bad = flights.get_side_output(BAD).map(lambda bad: f"{bad.path}, byte {bad.offset}: {bad.reason}", Types.STRING())
    write(bad, output / "bad", Encoder.simple_string_encoder())


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", default=str(DATA / "flights.csv"), help="file or folder")
    parser.add_argument("--model", default=str(DATA / "late_arrival.json"), help="file that each host has")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--follow", action="store_true", help="without an end: score each file that comes")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    if options.follow:
        env.enable_checkpointing(10_000)
    else:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    build(env, options.input, options.model, options.output, follow=options.follow)
    env.execute("scores")


if __name__ == "__main__":
    main()
