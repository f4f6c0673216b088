package firesteel.spark;

import java.util.Properties;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskNotSerializableException;
import org.apache.spark.scheduler.ExternalClusterManager;
import org.apache.spark.scheduler.SchedulerBackend;
import org.apache.spark.scheduler.TaskDescription;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskScheduler;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSet;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.apache.spark.scheduler.local.LocalSchedulerBackend;
import org.apache.spark.util.SystemClock;
import scala.Enumeration;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.Map;

/**
 * Spark's "cluster manager" for two masters. "firesteel": executors are started by TaskManagers and come by themselves.
 * "local[firesteel]", which Spark takes for a local one: the driver is its own executor.
 */
public final class SlotsClusterManager implements ExternalClusterManager {
  private static final String LOCAL = "local[firesteel]";

  @Override
  public boolean canCreate(String master) {
    return master.equals("firesteel") || master.equals(LOCAL);
  }

  @Override
  public TaskScheduler createTaskScheduler(SparkContext spark, String master) {
    int failures = spark.conf().getInt("spark.task.maxFailures", 4);
    return new Scheduler(spark, failures, master.equals(LOCAL));
  }

  @Override
  public SchedulerBackend createSchedulerBackend(SparkContext spark, String master, TaskScheduler scheduler) {
    if (master.equals(LOCAL)) {
      int cores = spark.conf().getInt("spark.firesteel.localCores", 1);
      return new LocalSchedulerBackend(spark.conf(), (TaskSchedulerImpl) scheduler, cores);
    }
    return new CoarseGrainedSchedulerBackend((TaskSchedulerImpl) scheduler, spark.env().rpcEnv());
  }

  @Override
  public void initialize(TaskScheduler scheduler, SchedulerBackend backend) {
    ((TaskSchedulerImpl) scheduler).initialize(backend);
  }

  /** Keeps the cores of slots free of tasks of bounded stages. */
  private static final class Scheduler extends TaskSchedulerImpl {
    private final int spareCores;

    Scheduler(SparkContext spark, int failures, boolean isLocal) {
      super(spark, failures, isLocal, new SystemClock());
      spareCores = spark.conf().getInt("spark.firesteel.spareCores", 0);
    }

    @Override
    public TaskSetManager createTaskSetManager(TaskSet tasks, int attempts) {
      Properties properties = tasks.properties();
      boolean isSlot = properties != null && Slots.POOL.equals(properties.getProperty(Slots.POOL_PROPERTY));
      return isSlot || spareCores == 0
          ? super.createTaskSetManager(tasks, attempts)
          : new BoundedTasks(this, tasks, attempts);
    }

    /** How many tasks of bounded stages run on an executor. */
    int boundedTasksOn(String executor) {
      int count = 0;
      for (java.util.Map.Entry<Object, TaskSetManager> task : taskIdToTaskSetManager().entrySet()) {
        if (task.getValue() instanceof BoundedTasks) {
          Option<TaskInfo> info = task.getValue().taskInfos().get(task.getKey());
          count += info.isDefined() && info.get().executorId().equals(executor) ? 1 : 0;
        }
      }
      return count;
    }
  }

  /** Tasks of a bounded stage: they take no more cores of an executor than are spare. */
  private static final class BoundedTasks extends TaskSetManager {
    private final Scheduler scheduler;

    BoundedTasks(Scheduler scheduler, TaskSet tasks, int attempts) {
      super(scheduler, tasks, attempts, scheduler.healthTrackerOpt(), new SystemClock());
      this.scheduler = scheduler;
    }

    @Override
    public Tuple3<Option<TaskDescription>, Object, Object> resourceOffer(
        String executor,
        String host,
        Enumeration.Value locality,
        scala.math.BigDecimal cores,
        Map<String, Map<String, Object>> resources)
        throws TaskNotSerializableException {
      if (scheduler.boundedTasksOn(executor) >= scheduler.spareCores) {
        return new Tuple3<>(Option.empty(), false, -1);
      }
      return super.resourceOffer(executor, host, locality, cores, resources);
    }
  }
}
