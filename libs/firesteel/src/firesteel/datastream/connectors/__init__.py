"""Sources and sinks, under PyFlink's module paths.

The package has their names as well, as PyFlink's does. A connector is imported when one of its names is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.core.pyflink_names import reexports

# A name is exported by its ``as``, and would get a statement of its own for that.
# isort: off
if TYPE_CHECKING:  # the one list of these names: ``reexports`` reads it as well
    from firesteel.datastream.connectors.base import (
        ALREADY_COMMITTED as ALREADY_COMMITTED,
        COMMITTED as COMMITTED,
        END as END,
        NEED_SPLITS as NEED_SPLITS,
        AsyncSourceReader as AsyncSourceReader,
        Boundedness as Boundedness,
        Chunk as Chunk,
        CommitOutcome as CommitOutcome,
        CommitResult as CommitResult,
        Committable as Committable,
        Committer as Committer,
        DeliveryGuarantee as DeliveryGuarantee,
        EnumeratorSpec as EnumeratorSpec,
        ReaderContext as ReaderContext,
        ReaderInfo as ReaderInfo,
        SimpleVersionedSerializer as SimpleVersionedSerializer,
        Sink as Sink,
        SinkWriter as SinkWriter,
        Source as Source,
        SourceBatch as SourceBatch,
        SourceReader as SourceReader,
        Split as Split,
        SplitCursor as SplitCursor,
        SplitEnumerator as SplitEnumerator,
        SplitEnumeratorContext as SplitEnumeratorContext,
        SplitQueueReader as SplitQueueReader,
        TwoPhaseCommitSink as TwoPhaseCommitSink,
        TwoPhaseWriter as TwoPhaseWriter,
        Wait as Wait,
        WriterContext as WriterContext,
        WriterState as WriterState,
    )
    from firesteel.datastream.connectors.data_generator import (
        DataGeneratorSource as DataGeneratorSource,
        RateLimiterStrategy as RateLimiterStrategy,
    )
    from firesteel.datastream.connectors.file_system import (
        BucketAssigner as BucketAssigner,
        BulkFormat as BulkFormat,
        BulkFormatBuilder as BulkFormatBuilder,
        DefaultRollingPolicy as DefaultRollingPolicy,
        FileCompactor as FileCompactor,
        FileCompactStrategy as FileCompactStrategy,
        FileEnumeratorProvider as FileEnumeratorProvider,
        FileFormat as FileFormat,
        FileSink as FileSink,
        FileSource as FileSource,
        FileSourceBuilder as FileSourceBuilder,
        FileSplitAssignerProvider as FileSplitAssignerProvider,
        MalformedPolicy as MalformedPolicy,
        MalformedRecord as MalformedRecord,
        MalformedRecords as MalformedRecords,
        MalformedToSideOutput as MalformedToSideOutput,
        OnCheckpointRollingPolicy as OnCheckpointRollingPolicy,
        OutputFileConfig as OutputFileConfig,
        OutputFileConfigBuilder as OutputFileConfigBuilder,
        RollingPolicy as RollingPolicy,
        RowFormatBuilder as RowFormatBuilder,
        StreamFormat as StreamFormat,
        StreamingFileSink as StreamingFileSink,
    )
    from firesteel.datastream.connectors.hybrid_source import (
        HybridSource as HybridSource,
        HybridSourceBuilder as HybridSourceBuilder,
    )
    from firesteel.datastream.connectors.jdbc import (
        JdbcConnectionOptions as JdbcConnectionOptions,
        JdbcExactlyOnceOptions as JdbcExactlyOnceOptions,
        JdbcExecutionOptions as JdbcExecutionOptions,
        JdbcGenericParameterValuesProvider as JdbcGenericParameterValuesProvider,
        JdbcNumericBetweenParametersProvider as JdbcNumericBetweenParametersProvider,
        JdbcRowLookup as JdbcRowLookup,
        JdbcSink as JdbcSink,
        JdbcSource as JdbcSource,
        JdbcSourceBuilder as JdbcSourceBuilder,
        JdbcTableSink as JdbcTableSink,
    )
    from firesteel.datastream.connectors.kafka import (
        ConsumerRecords as ConsumerRecords,
        ConsumerRecord as ConsumerRecord,
        FlinkKafkaConsumer as FlinkKafkaConsumer,
        FlinkKafkaProducer as FlinkKafkaProducer,
        KafkaOffsetResetStrategy as KafkaOffsetResetStrategy,
        KafkaOffsetsInitializer as KafkaOffsetsInitializer,
        KafkaProducerRecord as KafkaProducerRecord,
        KafkaRecordDeserializationSchema as KafkaRecordDeserializationSchema,
        KafkaRecordSerializationSchema as KafkaRecordSerializationSchema,
        KafkaRecordSerializationSchemaBuilder as KafkaRecordSerializationSchemaBuilder,
        KafkaSink as KafkaSink,
        KafkaSinkBuilder as KafkaSinkBuilder,
        KafkaSource as KafkaSource,
        KafkaSourceBuilder as KafkaSourceBuilder,
        KafkaTopicPartition as KafkaTopicPartition,
        KafkaTopicSelector as KafkaTopicSelector,
        Semantic as Semantic,
    )
    from firesteel.datastream.connectors.number_seq import (
        NumberSequenceSource as NumberSequenceSource,
    )

if not TYPE_CHECKING:
    __getattr__ = reexports(__name__)
