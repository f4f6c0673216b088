package firesteel.spark;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.SparkStatusTracker;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.PairwiseRDD;
import org.apache.spark.api.python.PythonPartitioner;
import org.apache.spark.rdd.RDD;
import org.apache.spark.shuffle.ShuffleWriteProcessor;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.TaskData;
import org.apache.spark.status.api.v1.TaskMetrics;
import scala.Option;
import scala.Product2;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Bounded jobs in the driver: a run is one Spark job, whose stages Spark cuts at the shuffles between them. Called by
 * py4j; each method is one round trip.
 */
public final class Stages {
  /** How many tasks of a run may be under way at once; a property of its Spark job. */
  static final String CORES_PROPERTY = "spark.firesteel.stageCores";

  /** The name of the run that a Spark job belongs to. */
  static final String RUN_PROPERTY = "spark.firesteel.run";

  private static final Map<String, Run> RUNS = new ConcurrentHashMap<>();

  /** Cores of an executor: those that a run may take, and those of all its slots. */
  record Place(int cores, int slots) {}

  private Stages() {}

  private static final class Run {
    final Map<String, ShuffleDependency<Object, byte[], byte[]>> outputs = new ConcurrentHashMap<>();
    final String owner;
    volatile JavaFutureAction<List<byte[]>> job = null;
    /** By executor; null: any, as many as the run has in all. */
    volatile Map<String, Place> places = null;

    Run(String owner) {
      this.owner = owner;
    }
  }

  /** A new run; what its owner has run before is dropped. */
  public static void begin(JavaSparkContext spark, String run, String owner) {
    dropAll(spark, owner);
    RUNS.put(run, new Run(owner));
  }

  /**
   * Where tasks of a run may be from now on; those that run elsewhere run on.
   *
   * @param lines for each executor: id, cores of the run, cores of all slots; nothing happens to an unknown run.
   */
  public static void place(String run, String lines) {
    Run found = RUNS.get(run);
    if (found == null) {
      return;
    }
    Map<String, Place> places = new ConcurrentHashMap<>();
    for (String line : lines.split("\n")) {
      String[] fields = line.split("\t");
      if (fields.length == 3) {
        places.put(fields[0], new Place(Integer.parseInt(fields[1]), Integer.parseInt(fields[2])));
      }
    }
    found.places = places;
  }

  /** What a run may take of an executor; null: whatever is free there. */
  static Place place(String run, String executor, Place none) {
    Run found = RUNS.get(run);
    Map<String, Place> places = found == null ? null : found.places;
    return places == null ? null : places.getOrDefault(executor, none);
  }

  /**
   * What a stage reads.
   *
   * @param spec for each task: length of its own bytes (-1 = it has none) and these; bucket bytes; number of pieces
   *     without keys and these; number of those with keys, and these: input, stage, from, to.
   * @param stages those that it reads, by number.
   */
  public static JavaRDD<byte[]> input(JavaSparkContext spark, String run, List<String> stages, byte[] spec) {
    List<ShuffleDependency<Object, byte[], byte[]>> dependencies = new ArrayList<>();
    for (String stage : stages) {
      dependencies.add(RUNS.get(run).outputs.get(stage));
    }
    ByteBuffer in = ByteBuffer.wrap(spec);
    StageInput.Part[] parts = new StageInput.Part[in.getInt()];
    for (int i = 0; i < parts.length; i++) {
      int length = in.getInt();
      byte[] own = length < 0 ? null : new byte[length];
      if (own != null) {
        in.get(own);
      }
      long bucketBytes = in.getLong();
      parts[i] = new StageInput.Part(i, own, pieces(in), pieces(in), bucketBytes);
    }
    return new StageInput(spark.sc(), dependencies, parts).toJavaRDD();
  }

  private static int[][] pieces(ByteBuffer in) {
    int[][] found = new int[in.getInt()][4];
    for (int[] piece : found) {
      for (int k = 0; k < piece.length; k++) {
        piece[k] = in.getInt();
      }
    }
    return found;
  }

  /** What a stage gives: pairs of partition and bytes, kept as files of Spark's shuffle. */
  @SuppressWarnings({"unchecked", "rawtypes"})
  public static void output(String run, String stage, JavaRDD<byte[]> pairs, int partitions) {
    ClassTag<Object> number = (ClassTag) ClassTag$.MODULE$.apply(long.class);
    ClassTag<byte[]> bytes = ClassTag$.MODULE$.apply(byte[].class);
    SparkContext spark = pairs.rdd().sparkContext();
    RDD<? extends Product2<Object, byte[]>> rdd;
    spark.setCallSite(stage); // so is Spark's stage called
    try {
      rdd = (RDD) new PairwiseRDD(new StageOutput(pairs.rdd()));
    } finally {
      spark.clearCallSite();
    }
    RUNS.get(run).outputs.put(
        stage,
        new ShuffleDependency<Object, byte[], byte[]>(
            rdd,
            new PythonPartitioner(partitions, 0L),
            new BlobSerializer(),
            Option.empty(),
            Option.empty(),
            false,
            new ShuffleWriteProcessor(),
            number,
            bytes,
            bytes));
  }

  /** Runs everything that these results stand on. */
  public static void submit(JavaSparkContext spark, String run, JavaRDD<byte[]> results, int cores, String description) {
    SparkContext context = spark.sc();
    context.addJobTag(tag(run));
    context.setLocalProperty(CORES_PROPERTY, String.valueOf(cores));
    context.setLocalProperty(RUN_PROPERTY, run);
    context.setLocalProperty("spark.job.description", description);
    try {
      RUNS.get(run).job = results.collectAsync();
    } finally {
      context.setLocalProperty("spark.job.description", null);
      context.setLocalProperty(RUN_PROPERTY, null);
      context.setLocalProperty(CORES_PROPERTY, null);
      context.removeJobTag(tag(run));
    }
  }

  /** "unknown", "running", "done", or "failed: " and why. */
  public static String state(String run) {
    Run found = RUNS.get(run);
    if (found == null || found.job == null) {
      return "unknown";
    }
    if (!found.job.isDone()) {
      return "running";
    }
    try {
      found.job.get();
      return "done";
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return "running";
    } catch (ExecutionException | CancellationException failed) {
      Throwable cause = failed.getCause() == null ? failed : failed.getCause();
      return "failed: " + cause.getMessage();
    }
  }

  /**
   * A line for each stage that Spark knows of: its name, tasks, active, complete and failed ones, Spark's number; and
   * one, with an empty name, for each of its tasks that has begun: number, status, records and bytes read, records and
   * bytes written, bytes spilled to disk.
   *
   * @param known names of stages whose tasks need not be told of, one in each line.
   */
  public static String progress(JavaSparkContext spark, String run, String known) {
    Run found = RUNS.get(run);
    if (found == null || found.job == null) {
      return "";
    }
    Set<String> left = new HashSet<>(List.of(known.split("\n")));
    StringBuilder lines = new StringBuilder();
    SparkStatusTracker tracker = spark.sc().statusTracker();
    for (Integer job : found.job.jobIds()) {
      Option<SparkJobInfo> info = tracker.getJobInfo(job);
      if (info.isEmpty()) {
        continue;
      }
      for (int stage : info.get().stageIds()) {
        Option<SparkStageInfo> one = tracker.getStageInfo(stage);
        if (one.isDefined()) {
          SparkStageInfo s = one.get();
          line(lines, s.name(), s.numTasks(), s.numActiveTasks(), s.numCompletedTasks(), s.numFailedTasks(), stage);
          if (!left.contains(s.name())) {
            tasks(lines, spark.sc().statusStore(), s);
          }
        }
      }
    }
    return lines.toString();
  }

  private static void tasks(StringBuilder lines, AppStatusStore store, SparkStageInfo stage) {
    Map<Integer, TaskData> last = new TreeMap<>();
    for (TaskData task :
        CollectionConverters.asJava(store.taskList(stage.stageId(), stage.currentAttemptId(), Integer.MAX_VALUE))) {
      TaskData other = last.get(task.index());
      if (other == null || (!other.status().equals("SUCCESS") && other.attempt() < task.attempt())) {
        last.put(task.index(), task);
      }
    }
    for (TaskData task : last.values()) {
      Option<TaskMetrics> metrics = task.taskMetrics();
      if (metrics.isDefined()) {
        TaskMetrics m = metrics.get();
        line(
            lines,
            "",
            task.index(),
            task.status(),
            m.inputMetrics().recordsRead(),
            m.inputMetrics().bytesRead(),
            m.outputMetrics().recordsWritten(),
            m.outputMetrics().bytesWritten(),
            m.diskBytesSpilled());
      } else {
        line(lines, "", task.index(), task.status(), 0, 0, 0, 0, 0);
      }
    }
  }

  private static void line(StringBuilder lines, Object... fields) {
    for (int i = 0; i < fields.length; i++) {
      lines.append(i == 0 ? "" : "\t").append(fields[i]);
    }
    lines.append('\n');
  }

  /** What came of a run that is done. */
  public static List<byte[]> results(String run) throws Exception {
    return RUNS.get(run).job.get();
  }

  /** Ends a run, if it still goes on, and removes the files of its shuffles. */
  @SuppressWarnings("deprecation") // nor to forget one
  public static void drop(JavaSparkContext spark, String run) {
    Run found = RUNS.remove(run);
    if (found == null) {
      return;
    }
    spark.sc().cancelJobsWithTag(tag(run));
    for (ShuffleDependency<Object, byte[], byte[]> output : found.outputs.values()) {
      spark.env().shuffleManager().unregisterShuffle(output.shuffleId());
      spark.sc().cleaner().get().doCleanupShuffle(output.shuffleId(), false);
    }
  }

  /** Ends all runs of an owner. */
  public static void dropAll(JavaSparkContext spark, String owner) {
    for (Map.Entry<String, Run> run : RUNS.entrySet()) {
      if (run.getValue().owner.equals(owner)) {
        drop(spark, run.getKey());
      }
    }
  }

  private static String tag(String run) {
    return "stages-" + run;
  }
}
