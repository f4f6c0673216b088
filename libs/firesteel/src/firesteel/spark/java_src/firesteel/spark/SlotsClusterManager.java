package firesteel.spark;

import java.util.Properties;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskFailedReason;
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
    private static final Stages.Place NOWHERE = new Stages.Place(0, 0);

    private final int spareCores;

    Scheduler(SparkContext spark, int failures, boolean isLocal) {
      super(spark, failures, isLocal, new SystemClock());
      spareCores = spark.conf().getInt("spark.firesteel.spareCores", 0);
    }

    @Override
    public TaskSetManager createTaskSetManager(TaskSet tasks, int attempts) {
      Properties properties = tasks.properties();
      boolean isSlot = properties != null && Slots.POOL.equals(properties.getProperty(Slots.POOL_PROPERTY));
      return isSlot ? super.createTaskSetManager(tasks, attempts) : new BoundedTasks(this, tasks);
    }

    /** How many tasks of bounded stages run on an executor; those of jobs that hold slots for it do not count. */
    int boundedTasksOn(String executor) {
      int count = 0;
      for (java.util.Map.Entry<Object, TaskSetManager> task : taskIdToTaskSetManager().entrySet()) {
        if (task.getValue() instanceof BoundedTasks && ((BoundedTasks) task.getValue()).run == null) {
          Option<TaskInfo> info = task.getValue().taskInfos().get(task.getKey());
          count += info.isDefined() && info.get().executorId().equals(executor) ? 1 : 0;
        }
      }
      return count;
    }

    /** How many tasks of runs (`Stages`) are under way: of one run or, null, of all; on one executor or on all. */
    int tasksOf(String run, String executor) {
      int count = 0;
      for (java.util.Map.Entry<Object, TaskSetManager> task : taskIdToTaskSetManager().entrySet()) {
        String found = task.getValue() instanceof BoundedTasks ? ((BoundedTasks) task.getValue()).run : null;
        if (found != null && (run == null || run.equals(found))) {
          Option<TaskInfo> info = executor == null ? null : task.getValue().taskInfos().get(task.getKey());
          count += info == null || (info.isDefined() && info.get().executorId().equals(executor)) ? 1 : 0;
        }
      }
      return count;
    }

    /** Whether a run may have no more tasks on an executor: there it has as many as its job has slots. */
    boolean isFull(String run, int cores, String executor) {
      if (tasksOf(run, null) >= cores) {
        return true;
      }
      Stages.Place place = Stages.place(run, executor, NOWHERE);
      return place != null && (tasksOf(run, executor) >= place.cores() || tasksOf(null, executor) >= place.slots());
    }
  }

  /**
   * Tasks of a bounded stage. Those of a run (`Stages`) take as many cores as the job has slots, of each executor as
   * many as it has slots there; others no more of an executor than are spare. What user code raises is not tried again.
   */
  private static final class BoundedTasks extends TaskSetManager {
    private static final int ATTEMPTS = 4;
    private static final String FAILURE = "FIRESTEEL_FAILURE ";

    private final Scheduler scheduler;
    private final String run;
    private final int cores;

    BoundedTasks(Scheduler scheduler, TaskSet tasks) {
      super(scheduler, tasks, ATTEMPTS, scheduler.healthTrackerOpt(), new SystemClock());
      Properties properties = tasks.properties() == null ? new Properties() : tasks.properties();
      this.scheduler = scheduler;
      this.run = properties.getProperty(Stages.RUN_PROPERTY);
      this.cores = Integer.parseInt(properties.getProperty(Stages.CORES_PROPERTY, "0"));
    }

    @Override
    public void handleFailedTask(long task, Enumeration.Value state, TaskFailedReason reason) {
      super.handleFailedTask(task, state, reason);
      if (reason instanceof ExceptionFailure && reason.toErrorString().contains(FAILURE)) {
        abort(reason.toErrorString(), Option.empty());
      }
    }

    @Override
    public Tuple3<Option<TaskDescription>, Object, Object> resourceOffer(
        String executor,
        String host,
        Enumeration.Value locality,
        scala.math.BigDecimal cores,
        Map<String, Map<String, Object>> resources)
        throws TaskNotSerializableException {
      boolean full =
          run == null
              ? scheduler.spareCores > 0 && scheduler.boundedTasksOn(executor) >= scheduler.spareCores
              : scheduler.isFull(run, this.cores, executor);
      if (full) {
        return new Tuple3<>(Option.empty(), false, -1);
      }
      return super.resourceOffer(executor, host, locality, cores, resources);
    }
  }
}
