package firesteel.spark;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.Dependency;
import org.apache.spark.MapOutputStatistics;
import org.apache.spark.Partition;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.DeterministicLevel;
import org.apache.spark.rdd.RDD;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Enumeration;
import scala.Product2;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.AbstractIterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * What the tasks of a stage read: bytes of their own, or pieces of the outputs of other stages, each behind a marker
 * (a zero byte and the number of the input). Inputs with keys come bucket by bucket: adjacent key groups of all of them
 * together, as many as have about so many bytes; a bucket begins with the marker of input -1. Where the number of tasks is
 * chosen by what there is to read, a task hears of it first: the marker of input -2 is that number, negative, minus 2.
 *
 * <p>What it depends on, and its tasks, are asked for when the stages that it reads have ended.
 */
final class StageInput extends RDD<byte[]> {
  private static final long serialVersionUID = 1L;
  private static final int BUCKET_MARK = -1;
  private static final int TASKS_MARK = -2;

  private final transient Stages.Inputs inputs;
  private final transient Part[] parts;
  private final transient Sizing sizing;

  /** How many tasks there may be, and the bytes that each is meant to read. */
  record Sizing(int least, int most, long volume) {}

  /** Pieces of shuffles: those without keys in order, then those with keys. Fields of `plain`: input, dep, from, to. */
  static final class Part implements Partition {
    private static final long serialVersionUID = 1L;
    final int index;
    final byte[] own;
    final int[][] plain;
    final int[][] keyed;
    final long bucketBytes;
    /** How many there are, if that was chosen by the size of the input; else 0. */
    final int tasks;

    Part(int index, byte[] own, int[][] plain, int[][] keyed, long bucketBytes, int tasks) {
      this.index = index;
      this.own = own;
      this.plain = plain;
      this.keyed = keyed;
      this.bucketBytes = bucketBytes;
      this.tasks = tasks;
    }

    @Override
    public int index() {
      return index;
    }

    @Override
    public int hashCode() {
      return index;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Part && ((Part) other).index == index;
    }
  }

  /**
   * @param inputs the stages that it reads, by number.
   * @param parts its tasks; where they are chosen by size, the smallest ones that there can be, in order.
   * @param sizing null: all of them are tasks.
   */
  StageInput(SparkContext spark, Stages.Inputs inputs, Part[] parts, Sizing sizing) {
    super(spark, seq(List.of()), ClassTag$.MODULE$.apply(byte[].class));
    this.inputs = inputs;
    this.parts = parts;
    this.sizing = sizing;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static Seq<Dependency<?>> seq(List deps) {
    return CollectionConverters.asScala(new ArrayList(deps)).toSeq();
  }

  @Override
  public Seq<Dependency<?>> getDependencies() {
    return seq(inputs.dependencies());
  }

  /** PySpark asks for it when nothing is known of what is read. */
  @Override
  public boolean isBarrier() {
    return false;
  }

  @Override
  public Partition[] getPartitions() {
    if (sizing == null) {
      return parts;
    }
    List<MapOutputStatistics> outputs = inputs.statistics();
    long[] sizes = new long[parts.length];
    for (int i = 0; i < parts.length; i++) {
      add(sizes, i, parts[i].plain, parts[parts.length - 1].plain, outputs);
      add(sizes, i, parts[i].keyed, parts[parts.length - 1].keyed, outputs);
    }
    int[] starts = StageTasks.starts(sizes, sizing.least(), sizing.most(), sizing.volume());
    Partition[] tasks = new Partition[starts.length];
    for (int i = 0; i < starts.length; i++) {
      Part first = parts[starts[i]];
      Part last = parts[(i + 1 < starts.length ? starts[i + 1] : parts.length) - 1];
      int[][] plain = joined(first.plain, last.plain);
      tasks[i] = new Part(i, null, plain, joined(first.keyed, last.keyed), first.bucketBytes, starts.length);
    }
    return tasks;
  }

  /** What all tasks read, as a broadcast input, says nothing about how many there should be. */
  private void add(long[] sizes, int i, int[][] pieces, int[][] ofLast, List<MapOutputStatistics> outputs) {
    int[][] ofFirst = pieces == parts[i].plain ? parts[0].plain : parts[0].keyed;
    for (int k = 0; k < pieces.length; k++) {
      if (parts.length == 1 || ofFirst[k][2] != ofLast[k][2]) {
        long[] bytes = outputs.get(pieces[k][1]).bytesByPartitionId();
        for (int partition = pieces[k][2]; partition < pieces[k][3]; partition++) {
          sizes[i] += bytes[partition];
        }
      }
    }
  }

  private static int[][] joined(int[][] first, int[][] last) {
    int[][] found = new int[first.length][];
    for (int k = 0; k < first.length; k++) {
      found[k] = new int[] {first[k][0], first[k][1], first[k][2], last[k][3]};
    }
    return found;
  }

  /** Nobody knows what user code does, nor in which order blocks come: who has read a lost output starts anew, too. */
  @Override
  public Enumeration.Value getOutputDeterministicLevel() {
    return DeterministicLevel.INDETERMINATE();
  }

  @Override
  public scala.collection.Iterator<byte[]> compute(Partition split, TaskContext context) {
    Part part = (Part) split;
    if (part.own != null) {
      return CollectionConverters.asScala(List.of(part.own).iterator());
    }
    List<int[]> pieces = new ArrayList<>(Arrays.asList(part.plain));
    if (part.keyed.length > 0) {
      pieces.addAll(buckets(part));
    }
    return new Pieces(pieces.iterator(), part.tasks, context);
  }

  @SuppressWarnings("unchecked")
  private ShuffleDependency<Object, byte[], byte[]> dependency(int number) {
    return (ShuffleDependency<Object, byte[], byte[]>) CollectionConverters.asJava(dependencies()).get(number);
  }

  /** Pieces of the inputs with keys, bucket after bucket. */
  private List<int[]> buckets(Part part) {
    int groups = part.keyed[0][3] - part.keyed[0][2];
    long[] bytes = new long[groups];
    for (int[] piece : part.keyed) {
      scala.collection.Iterator<Tuple2<BlockManagerId, scala.collection.Seq<Tuple3<BlockId, Object, Object>>>> places =
          sizes(dependency(piece[1]).shuffleId(), piece[2], piece[3]);
      while (places.hasNext()) {
        for (Tuple3<BlockId, Object, Object> block : CollectionConverters.asJava(places.next()._2())) {
          bytes[((ShuffleBlockId) block._1()).reduceId() - piece[2]] += (Long) block._2();
        }
      }
    }
    List<int[]> found = new ArrayList<>();
    int start = 0;
    long held = 0;
    for (int group = 0; group < groups; group++) {
      if (held > 0 && held + bytes[group] > part.bucketBytes) {
        add(found, part, start, group);
        start = group;
        held = 0;
      }
      held += bytes[group];
    }
    if (held > 0) {
      add(found, part, start, groups);
    }
    return found;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static scala.collection.Iterator<Tuple2<BlockManagerId, scala.collection.Seq<Tuple3<BlockId, Object, Object>>>>
      sizes(int shuffle, int from, int to) {
    return (scala.collection.Iterator)
        SparkEnv.get().mapOutputTracker().getMapSizesByExecutorId(shuffle, 0, Integer.MAX_VALUE, from, to);
  }

  private static void add(List<int[]> found, Part part, int from, int to) {
    found.add(new int[] {BUCKET_MARK, 0, 0, 0});
    for (int[] piece : part.keyed) {
      found.add(new int[] {piece[0], piece[1], piece[2] + from, piece[2] + to});
    }
  }

  private final class Pieces extends AbstractIterator<byte[]> {
    private final Iterator<int[]> pieces;
    private final TaskContext context;
    private final ShuffleReadMetricsReporter metrics;
    private scala.collection.Iterator<Product2<Object, byte[]>> reading = null;
    private byte[] marker;

    Pieces(Iterator<int[]> pieces, int tasks, TaskContext context) {
      this.pieces = pieces;
      this.marker = tasks == 0 ? null : marker(TASKS_MARK - tasks);
      this.context = context;
      this.metrics = context.taskMetrics().createTempShuffleReadMetrics();
    }

    @Override
    public boolean hasNext() {
      while (marker == null && (reading == null || !reading.hasNext())) {
        if (!pieces.hasNext()) {
          context.taskMetrics().mergeShuffleReadMetrics();
          return false;
        }
        int[] piece = pieces.next();
        marker = marker(piece[0]);
        reading = piece[0] == BUCKET_MARK ? null : open(piece);
      }
      return true;
    }

    private static byte[] marker(int number) {
      return ByteBuffer.allocate(5).put((byte) 0).putInt(number).array();
    }

    @SuppressWarnings("deprecation") // there is no other way to read a shuffle in parts
    private scala.collection.Iterator<Product2<Object, byte[]>> open(int[] piece) {
      return SparkEnv.get()
          .shuffleManager()
          .<Object, byte[]>getReader(
              dependency(piece[1]).shuffleHandle(), 0, Integer.MAX_VALUE, piece[2], piece[3], context, metrics)
          .read();
    }

    @Override
    public byte[] next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      if (marker != null) {
        byte[] found = marker;
        marker = null;
        return found;
      }
      return reading.next()._2();
    }
  }
}
