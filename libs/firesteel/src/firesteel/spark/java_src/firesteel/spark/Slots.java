package firesteel.spark;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.storage.BlockManagerId;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * The jobs of slots, kept in the driver so that they are found again when the Python process that started them has
 * gone. Called by py4j; each method is one round trip.
 */
public final class Slots {
  /** The scheduler pool of slots; a task of any other pool is one of a bounded stage. */
  static final String POOL = "slots";

  static final String POOL_PROPERTY = "spark.scheduler.pool";

  private static final Map<String, JavaFutureAction<List<byte[]>>> STARTED = new ConcurrentHashMap<>();

  private Slots() {}

  /** One partition that holds one element, to be computed on this executor, or null without it; empty: on any. */
  public static JavaRDD<byte[]> partition(JavaSparkContext spark, byte[] element, String executor) {
    if (executor.isEmpty()) {
      return spark.parallelize(List.of(element), 1);
    }
    String host = hosts(spark.sc()).get(executor);
    if (host == null) {
      return null;
    }
    Seq<String> places = seq(List.of("executor_" + host + "_" + executor));
    ClassTag<byte[]> bytes = ClassTag$.MODULE$.apply(byte[].class);
    return new JavaRDD<>(spark.sc().makeRDD(seq(List.of(new Tuple2<>(element, places))), bytes), bytes);
  }

  /** Submits the job of a slot. */
  public static void start(JavaRDD<byte[]> job, String allocation) {
    SparkContext spark = job.rdd().sparkContext();
    String tag = tag(allocation);
    String pool = spark.getLocalProperty(POOL_PROPERTY);
    spark.addJobTag(tag);
    spark.setLocalProperty(POOL_PROPERTY, POOL);
    try {
      STARTED.put(allocation, job.collectAsync());
    } finally {
      spark.setLocalProperty(POOL_PROPERTY, pool);
      spark.removeJobTag(tag);
    }
  }

  /** Allocation ids of all slots that `takeEnded` has not told of, one in each line. */
  public static String started() {
    return String.join("\n", STARTED.keySet());
  }

  /**
   * Slots that have ended, and forgets them. A line for each: allocation id, a tab, then "=" and what its task yielded,
   * or "!" and why the job failed.
   */
  public static String takeEnded() {
    StringBuilder lines = new StringBuilder();
    for (Map.Entry<String, JavaFutureAction<List<byte[]>>> slot : STARTED.entrySet()) {
      if (slot.getValue().isDone() && STARTED.remove(slot.getKey(), slot.getValue())) {
        lines.append(slot.getKey()).append('\t').append(end(slot.getValue())).append('\n');
      }
    }
    return lines.toString();
  }

  private static String end(JavaFutureAction<List<byte[]>> job) {
    try {
      return "=" + new String(job.get().get(0), StandardCharsets.UTF_8);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return "!interrupted";
    } catch (ExecutionException | CancellationException failed) {
      Throwable cause = failed.getCause() == null ? failed : failed.getCause();
      String text = String.valueOf(cause.getMessage());
      return "!" + text.lines().findFirst().orElse("");
    }
  }

  /**
   * Cancels the job of a slot and waits until Spark will not start it again.
   *
   * @return whether it has ended; a job that was not known has.
   */
  public static boolean cancel(SparkContext spark, String allocation, long milliseconds) throws InterruptedException {
    spark.cancelJobsWithTag(tag(allocation));
    JavaFutureAction<List<byte[]>> job = STARTED.get(allocation);
    if (job != null) {
      try {
        job.get(milliseconds, TimeUnit.MILLISECONDS);
      } catch (TimeoutException late) {
        return false;
      } catch (ExecutionException | CancellationException ended) {
        return true;
      }
    }
    return true;
  }

  /**
   * Orders all tasks to be killed, of slots and of bounded stages, before the driver ends: without that order executors
   * stay for their slots.
   *
   * @return whether all slots have ended, as far as Spark is concerned.
   */
  public static boolean cancelAll(SparkContext spark, long milliseconds) throws InterruptedException {
    spark.cancelAllJobs();
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
    for (JavaFutureAction<List<byte[]>> job : STARTED.values()) {
      try {
        job.get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
      } catch (TimeoutException late) {
        return false;
      } catch (ExecutionException | CancellationException ended) {
        continue;
      }
    }
    return true;
  }

  /** Ids of the executors that take tasks now, one in each line. */
  public static String executors(SparkContext spark) {
    return String.join("\n", hosts(spark).keySet());
  }

  /** Executor id and host of those that take tasks now. */
  private static Map<String, String> hosts(SparkContext spark) {
    TaskSchedulerImpl scheduler = (TaskSchedulerImpl) spark.taskScheduler();
    Map<String, String> found = new ConcurrentHashMap<>();
    for (BlockManagerId id :
        CollectionConverters.asJava(spark.env().blockManager().master().getMemoryStatus()).keySet()) {
      if (scheduler.isExecutorAlive(id.executorId())) {
        found.put(id.executorId(), id.host());
      }
    }
    return found;
  }

  private static String tag(String allocation) {
    return "slot-" + allocation;
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
