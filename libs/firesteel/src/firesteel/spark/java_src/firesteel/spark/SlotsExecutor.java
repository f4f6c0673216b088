package firesteel.spark;

import java.io.File;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.executor.CoarseGrainedExecutorBackend;
import org.apache.spark.executor.CoarseGrainedExecutorBackend$;
import org.apache.spark.executor.Executor;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.RpcTimeout;
import org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages;
import org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages.KillTask;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.BlockManagerId$;
import org.apache.spark.storage.BlockManagerMaster;
import org.apache.spark.storage.BlockManagerMessages.RegisterBlockManager;
import scala.Function1;
import scala.PartialFunction;
import scala.concurrent.ExecutionContext;
import scala.concurrent.Future;
import scala.reflect.ClassTag;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * An executor whose running slots outlive the driver: it leaves when the last of them has ended. Tasks of bounded stages
 * do not: nobody would take what they give. A driver that stops
 * it counts as lost, too, since it may have stood still and given up everybody; one that ends in order has told the
 * executor to kill each slot before.
 */
public final class SlotsExecutor extends CoarseGrainedExecutorBackend {
  private static final long LOOK_MILLISECONDS = 100;
  private static final long EXIT_MILLISECONDS = 5_000;

  private final SparkEnv env;
  private final Set<Object> toBeKilled = ConcurrentHashMap.newKeySet();
  /** Why it leaves with its last slot; empty while it does not. */
  private final Set<String> reasons = new HashSet<>();

  private SlotsExecutor(
      RpcEnv rpc, CoarseGrainedExecutorBackend.Arguments arguments, SparkEnv env, ResourceProfile profile) {
    super(
        rpc,
        arguments.driverUrl(),
        arguments.executorId(),
        arguments.bindAddress(),
        arguments.hostname(),
        arguments.cores(),
        env,
        arguments.resourcesFileOpt(),
        profile);
    this.env = env;
  }

  @Override
  public void onDisconnected(RpcAddress remote) {
    boolean isDriver = driver().isDefined() && driver().get().address().equals(remote);
    if (stopping().get() || !isDriver || slots() == 0) {
      super.onDisconnected(remote);
      return;
    }
    leaveWithTheLastSlot("The driver at " + remote + " is gone");
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receive() {
    return new Inbox(super.receive());
  }

  /** Spark's own treatment of messages, but for an order to stop while slots run. */
  private final class Inbox extends AbstractPartialFunction<Object, BoxedUnit> {
    private static final long serialVersionUID = 1;
    private final transient PartialFunction<Object, BoxedUnit> sparks;

    Inbox(PartialFunction<Object, BoxedUnit> sparks) {
      this.sparks = sparks;
    }

    @Override
    public boolean isDefinedAt(Object message) {
      return sparks.isDefinedAt(message);
    }

    @Override
    public <A extends Object, B> B applyOrElse(A message, Function1<A, B> otherwise) {
      boolean isStop = message == CoarseGrainedClusterMessages.StopExecutor$.MODULE$;
      if (isStop && slots() > 0) {
        leaveWithTheLastSlot("The driver has given up this executor");
        return null;
      }
      if (message instanceof KillTask && executor() != null) {
        toBeKilled.retainAll(executor().runningTasks().keySet());
        toBeKilled.add(((KillTask) message).taskId());
      }
      return sparks.applyOrElse(message, otherwise);
    }
  }

  /** Called as soon as the driver has accepted this executor. */
  @Override
  public void executor_$eq(Executor made) {
    super.executor_$eq(made);
    BlockManagerMaster master = env.blockManager().master();
    master.driverEndpoint_$eq(new Registrar(master.driverEndpoint(), env.conf()));
  }

  /**
   * Where the executor registers its blocks. A driver that has given it up refuses that when it is heard again, and
   * Spark would end the JVM at once; slots need no blocks.
   */
  private final class Registrar extends RpcEndpointRef {
    private static final long serialVersionUID = 1;
    private final transient RpcEndpointRef drivers;

    Registrar(RpcEndpointRef drivers, SparkConf conf) {
      super(conf);
      this.drivers = drivers;
    }

    @Override
    public RpcAddress address() {
      return drivers.address();
    }

    @Override
    public String name() {
      return drivers.name();
    }

    @Override
    public void send(Object message) {
      drivers.send(message);
    }

    @Override
    public <T> Future<T> ask(Object message, RpcTimeout timeout, ClassTag<T> type) {
      Future<T> answer = drivers.ask(message, timeout, type);
      if (!(message instanceof RegisterBlockManager)) {
        return answer;
      }
      @SuppressWarnings("unchecked")
      T own = (T) ((RegisterBlockManager) message).blockManagerId();
      return answer.map(id -> isRefusal(id) && stays() ? own : id, ExecutionContext.parasitic$.MODULE$);
    }

    private boolean stays() {
      if (slots() > 0) {
        leaveWithTheLastSlot("The driver does not know this executor any more");
      }
      return isLeaving();
    }

    private boolean isRefusal(Object answer) {
      return answer instanceof BlockManagerId
          && ((BlockManagerId) answer).executorId().equals(BlockManagerId$.MODULE$.INVALID_EXECUTOR_ID());
    }
  }

  private synchronized void leaveWithTheLastSlot(String why) {
    boolean wasLeaving = isLeaving();
    if (reasons.add(why)) {
      System.err.println(why + "; " + slots() + " slots go on.");
    }
    if (wasLeaving) {
      return;
    }
    endStages(why);
    inBackground(
        () -> {
          while (slots() > 0) {
            Thread.sleep(LOOK_MILLISECONDS);
          }
          System.err.println("The last slot has ended.");
          exit();
        });
  }

  private synchronized boolean isLeaving() {
    return !reasons.isEmpty();
  }

  /** Running slots that the driver has not ordered to be killed. */
  private int slots() {
    if (executor() == null) {
      return 0;
    }
    int count = 0;
    for (Map.Entry<Object, Executor.TaskRunner> task : executor().runningTasks().entrySet()) {
      count += isSlot(task.getValue()) && !toBeKilled.contains(task.getKey()) ? 1 : 0;
    }
    return count;
  }

  private static boolean isSlot(Executor.TaskRunner task) {
    return Slots.POOL.equals(task.taskDescription().properties().getProperty(Slots.POOL_PROPERTY));
  }

  /** Nobody is there any more who would take what tasks of bounded stages give. */
  private void endStages(String why) {
    for (Map.Entry<Object, Executor.TaskRunner> task : executor().runningTasks().entrySet()) {
      if (!isSlot(task.getValue())) {
        executor().killTask((Long) task.getKey(), false, why);
      }
    }
  }

  /** Arguments: the file with the secret, to be removed, then Spark's own. */
  public static void main(String[] arguments) {
    new File(arguments[0]).delete();
    inBackground(
        () -> {
          while (System.in.read() != -1) {}
          System.err.println("The TaskManager is gone.");
          exit();
        });
    HadoopLogin.ensure();
    String[] own = Arrays.copyOfRange(arguments, 1, arguments.length);
    CoarseGrainedExecutorBackend$ spark = CoarseGrainedExecutorBackend$.MODULE$;
    spark.run(spark.parseArguments(own, "SlotsExecutor"), SlotsExecutor::new);
    System.exit(0);
  }

  /** Ends the JVM, in order if that does not take long. */
  private static void exit() {
    inBackground(
        () -> {
          Thread.sleep(EXIT_MILLISECONDS);
          Runtime.getRuntime().halt(0);
        });
    System.exit(0);
  }

  private interface Work {
    void run() throws Exception;
  }

  private static void inBackground(Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (Exception failed) {
                failed.printStackTrace();
              }
            },
            "firesteel");
    thread.setDaemon(true);
    thread.start();
  }
}
