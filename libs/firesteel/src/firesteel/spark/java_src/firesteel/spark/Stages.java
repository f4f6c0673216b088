package firesteel.spark;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import org.apache.spark.Dependency;
import org.apache.spark.MapOutputStatistics;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SimpleFutureAction;
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
import scala.concurrent.ExecutionContext;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Bounded jobs in the driver: each stage of a run is a Spark job, which begins when those that the stage reads have ended,
 * since how many tasks it has may depend on what they gave. What was lost of a stage meanwhile Spark computes anew. Called by
 * py4j; each method is one round trip.
 */
public final class Stages {
  /** How many tasks of a run may be under way at once; a property of its Spark job. */
  static final String CORES_PROPERTY = "spark.firesteel.stageCores";

  /** The name of the run that a Spark job belongs to. */
  static final String RUN_PROPERTY = "spark.firesteel.run";

  private static final Map<String, Run> RUNS = new ConcurrentHashMap<>();
  private static final ExecutionContext CALLBACKS = callbacks();

  /** Cores of an executor: those that a run may take, and those of all its slots. */
  record Place(int cores, int slots) {}

  private Stages() {}

  /** A stage of a run; guarded by the run. */
  private static final class Output {
    final String name;
    final List<String> reads;
    final RDD<? extends Product2<Object, byte[]>> pairs;
    final int partitions;
    /** What it reads, if that is the result of a query, which is prepared first; else null. */
    QueryInput query = null;
    /** Prepares the query; null: it has not begun. */
    Thread preparation = null;
    ShuffleDependency<Object, byte[], byte[]> dependency = null;
    SimpleFutureAction<MapOutputStatistics> job = null;
    MapOutputStatistics statistics = null;

    Output(String name, List<String> reads, RDD<? extends Product2<Object, byte[]>> pairs, int partitions) {
      this.name = name;
      this.reads = reads;
      this.pairs = pairs;
      this.partitions = partitions;
    }
  }

  private static final class Run {
    final Map<String, Output> outputs = new LinkedHashMap<>();
    final Map<String, QueryInput> queries = new LinkedHashMap<>();
    final String name;
    final String owner;
    JavaRDD<byte[]> results = null;
    JavaFutureAction<List<byte[]>> job = null;
    int cores = 0;
    String description = "";
    String failure = null;
    boolean isDropped = false;
    /** By executor; null: any, as many as the run has in all. */
    volatile Map<String, Place> places = null;

    Run(String name, String owner) {
      this.name = name;
      this.owner = owner;
    }
  }

  /** The stages that another one reads, by number; there when they have ended. */
  static final class Inputs {
    private final Run run;
    private final List<String> names;

    private Inputs(Run run, List<String> names) {
      this.run = run;
      this.names = names;
    }

    List<Dependency<?>> dependencies() {
      synchronized (run) {
        List<Dependency<?>> found = new ArrayList<>();
        names.forEach(name -> found.add(run.outputs.get(name).dependency));
        return found;
      }
    }

    List<MapOutputStatistics> statistics() {
      synchronized (run) {
        return names.stream().map(name -> run.outputs.get(name).statistics).toList();
      }
    }
  }

  /** A new run; what its owner has run before is dropped. */
  public static void begin(JavaSparkContext spark, String run, String owner) {
    dropAll(spark, owner);
    RUNS.put(run, new Run(run, owner));
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
   * @param spec 1 and least, most and volume, if the number of tasks is chosen by size (`StageInput`), else 0; for each
   *     task: length of its own bytes (-1 = it has none) and these; bucket bytes; number of pieces without keys and these;
   *     number of those with keys, and these: input, stage, from, to.
   * @param stages those that it reads, by number.
   */
  public static JavaRDD<byte[]> input(JavaSparkContext spark, String run, List<String> stages, byte[] spec) {
    ByteBuffer in = ByteBuffer.wrap(spec);
    StageInput.Sizing sizing =
        in.get() == 0 ? null : new StageInput.Sizing(in.getInt(), in.getInt(), in.getLong());
    StageInput.Part[] parts = new StageInput.Part[in.getInt()];
    for (int i = 0; i < parts.length; i++) {
      int length = in.getInt();
      byte[] own = length < 0 ? null : new byte[length];
      if (own != null) {
        in.get(own);
      }
      long bucketBytes = in.getLong();
      parts[i] = new StageInput.Part(i, own, pieces(in), pieces(in), bucketBytes, 0);
    }
    return new StageInput(spark.sc(), new Inputs(RUNS.get(run), new ArrayList<>(stages)), parts, sizing).toJavaRDD();
  }

  /**
   * What a stage reads that has a query of Spark SQL in front of it.
   *
   * @param settings of Spark's session.
   * @param tables for each one: name, format, columns as in DDL, options and files.
   * @param recursions for each one: name, name of new rows, first query, query of a step, whether duplicates stay.
   * @param partitions how many tasks the stage has, at most.
   */
  @SuppressWarnings("unchecked")
  public static JavaRDD<byte[]> query(
      JavaSparkContext spark, String run, String stage, String text, Map<String, String> settings,
      List<List<Object>> tables, List<List<Object>> recursions, int maxIterations, int partitions) {
    List<QueryInput.Table> read = new ArrayList<>();
    for (List<Object> table : tables) {
      read.add(
          new QueryInput.Table(
              (String) table.get(0),
              (String) table.get(1),
              (String) table.get(2),
              Map.copyOf((Map<String, String>) table.get(3)),
              new ArrayList<>((List<String>) table.get(4))));
    }
    List<QueryInput.Recursion> computed = new ArrayList<>();
    for (List<Object> one : recursions) {
      computed.add(
          new QueryInput.Recursion(
              (String) one.get(0), (String) one.get(1), (String) one.get(2), (String) one.get(3), (Boolean) one.get(4)));
    }
    QueryInput input =
        new QueryInput(
            spark.sc(), new QueryInput.Query(text, Map.copyOf(settings), read, computed, maxIterations, partitions));
    Run found = RUNS.get(run);
    synchronized (found) {
      found.queries.put(stage, input);
    }
    return input.toJavaRDD();
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
  public static void output(String run, String stage, List<String> reads, JavaRDD<byte[]> pairs, int partitions) {
    SparkContext spark = pairs.rdd().sparkContext();
    Run found = RUNS.get(run);
    spark.setCallSite(stage); // so is Spark's stage called
    try {
      RDD<? extends Product2<Object, byte[]>> rdd = (RDD) new PairwiseRDD(new StageOutput(pairs.rdd()));
      synchronized (found) {
        Output output = new Output(stage, new ArrayList<>(reads), rdd, partitions);
        output.query = found.queries.get(stage);
        found.outputs.put(stage, output);
      }
    } finally {
      spark.clearCallSite();
    }
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static ShuffleDependency<Object, byte[], byte[]> dependency(Output output) {
    ClassTag<Object> number = (ClassTag) ClassTag$.MODULE$.apply(long.class);
    ClassTag<byte[]> bytes = ClassTag$.MODULE$.apply(byte[].class);
    return new ShuffleDependency<Object, byte[], byte[]>(
        output.pairs,
        new PythonPartitioner(output.partitions, 0L),
        new BlobSerializer(),
        Option.empty(),
        Option.empty(),
        false,
        new ShuffleWriteProcessor(),
        number,
        bytes,
        bytes);
  }

  /** Runs all stages, and takes these results from them. */
  public static void submit(JavaSparkContext spark, String run, JavaRDD<byte[]> results, int cores, String description) {
    Run found = RUNS.get(run);
    synchronized (found) {
      found.results = results;
      found.cores = cores;
      found.description = description;
      goOn(spark.sc(), found);
    }
  }

  /** Begins with the stages whose inputs are there; with the results, when all stages have ended. */
  private static void goOn(SparkContext context, Run run) {
    synchronized (run) {
      if (run.isDropped || run.failure != null) {
        return;
      }
      boolean haveAllEnded = true;
      for (Output output : run.outputs.values()) {
        haveAllEnded &= output.statistics != null;
        if (output.job == null && output.reads.stream().allMatch(name -> run.outputs.get(name).statistics != null)) {
          if (output.query == null || output.query.isPrepared()) {
            asJobOf(context, run, () -> begin(context, run, output));
          } else if (output.preparation == null) {
            output.preparation = preparation(context, run, output);
            output.preparation.start();
          }
        }
      }
      if (haveAllEnded) {
        asJobOf(context, run, () -> run.job = run.results.collectAsync());
      }
    }
  }

  /** Runs something in whose Spark jobs the run is named, so that they take its cores only and end with it. */
  private static void asJobOf(SparkContext context, Run run, Runnable submission) {
    context.addJobTag(tag(run.name));
    context.setLocalProperty(CORES_PROPERTY, String.valueOf(run.cores));
    context.setLocalProperty(RUN_PROPERTY, run.name);
    context.setLocalProperty("spark.job.description", run.description);
    try {
      submission.run();
    } finally {
      context.setLocalProperty("spark.job.description", null);
      context.setLocalProperty(RUN_PROPERTY, null);
      context.setLocalProperty(CORES_PROPERTY, null);
      context.removeJobTag(tag(run.name));
    }
  }

  private static void begin(SparkContext context, Run run, Output output) {
    output.dependency = dependency(output);
    output.job = context.submitMapStage(output.dependency);
    output.job.onComplete(
        ended -> {
          ended(context, run, output, ended.isSuccess() ? ended.get() : null, ended.failed());
          return null;
        },
        CALLBACKS);
  }

  /** Prepares the query of a stage, in a thread of its own: it waits for the query's own stages. */
  private static Thread preparation(SparkContext context, Run run, Output output) {
    Thread thread =
        new Thread(
            () -> {
              try {
                asJobOf(context, run, output.query::prepare);
                goOn(context, run);
              } catch (Throwable error) {
                failed(context, run, error);
              }
            },
            "firesteel-query");
    thread.setDaemon(true);
    return thread;
  }

  private static void ended(
      SparkContext context, Run run, Output output, MapOutputStatistics statistics, scala.util.Try<Throwable> failure) {
    if (statistics == null) {
      failed(context, run, failure.get());
      return;
    }
    try {
      synchronized (run) {
        output.statistics = statistics;
        goOn(context, run);
      }
    } catch (Throwable error) {
      failed(context, run, error);
    }
  }

  private static void failed(SparkContext context, Run run, Throwable error) {
    synchronized (run) {
      run.failure = run.failure == null ? String.valueOf(error.getMessage()) : run.failure;
    }
    cancel(context, run); // other stages of a run that has failed
  }

  private static void cancel(SparkContext context, Run run) {
    synchronized (run) {
      for (Output output : run.outputs.values()) {
        if (output.preparation != null) {
          output.preparation.interrupt(); // else it would begin with the next stage of its query
        }
      }
    }
    context.cancelJobsWithTag(tag(run.name));
  }

  /** "unknown", "running", "done", or "failed: " and why. */
  public static String state(String run) {
    Run found = RUNS.get(run);
    if (found == null) {
      return "unknown";
    }
    JavaFutureAction<List<byte[]>> job;
    synchronized (found) {
      if (found.failure != null) {
        return "failed: " + found.failure;
      }
      if (found.results == null) {
        return "unknown";
      }
      job = found.job;
    }
    if (job == null || !job.isDone()) {
      return "running";
    }
    try {
      job.get();
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
    if (found == null) {
      return "";
    }
    Set<String> left = new HashSet<>(List.of(known.split("\n")));
    StringBuilder lines = new StringBuilder();
    for (Map.Entry<String, List<SparkStageInfo>> one : begun(spark.sc(), found).entrySet()) {
      List<SparkStageInfo> runs = one.getValue();
      SparkStageInfo last = runs.get(runs.size() - 1);
      int complete = runs.stream().mapToInt(SparkStageInfo::numCompletedTasks).max().getAsInt();
      int active = runs.stream().mapToInt(SparkStageInfo::numActiveTasks).sum();
      int failed = runs.stream().mapToInt(SparkStageInfo::numFailedTasks).sum();
      line(lines, one.getKey(), last.numTasks(), active, complete, failed, last.stageId());
      if (!left.contains(one.getKey())) {
        runs.forEach(stage -> tasks(lines, spark.sc().statusStore(), stage));
      }
    }
    return lines.toString();
  }

  /** What Spark has begun with of each stage, by its name: once more, if a later job has missed some of its output. */
  private static Map<String, List<SparkStageInfo>> begun(SparkContext context, Run run) {
    List<Object> jobs = new ArrayList<>();
    synchronized (run) {
      for (Output output : run.outputs.values()) {
        if (output.job != null) {
          jobs.addAll(CollectionConverters.asJava(output.job.jobIds()));
        }
      }
      if (run.job != null) {
        jobs.addAll(run.job.jobIds());
      }
    }
    Map<String, List<SparkStageInfo>> found = new LinkedHashMap<>();
    SparkStatusTracker tracker = context.statusTracker();
    for (Object job : jobs) {
      Option<SparkJobInfo> info = tracker.getJobInfo((Integer) job);
      if (info.isEmpty()) {
        continue;
      }
      for (int stage : info.get().stageIds()) {
        Option<SparkStageInfo> one = tracker.getStageInfo(stage);
        if (one.isDefined() && one.get().submissionTime() > 0) {
          found.computeIfAbsent(one.get().name(), name -> new ArrayList<>()).add(one.get());
        }
      }
    }
    return found;
  }

  /** Where Spark's own pages are; empty: there are none. */
  public static String pages(JavaSparkContext spark) {
    Option<String> found = spark.sc().uiWebUrl();
    return found.isDefined() ? found.get() : "";
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
    synchronized (found) {
      found.isDropped = true;
      cancel(spark.sc(), found);
      for (Output output : found.outputs.values()) {
        if (output.dependency != null) {
          spark.env().shuffleManager().unregisterShuffle(output.dependency.shuffleId());
          spark.sc().cleaner().get().doCleanupShuffle(output.dependency.shuffleId(), false);
        }
      }
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

  private static ExecutionContext callbacks() {
    Executor one =
        Executors.newSingleThreadExecutor(
            task -> {
              Thread thread = new Thread(task, "firesteel-stages");
              thread.setDaemon(true);
              return thread;
            });
    return ExecutionContext.fromExecutor(one);
  }

  private static String tag(String run) {
    return "stages-" + run;
  }
}
