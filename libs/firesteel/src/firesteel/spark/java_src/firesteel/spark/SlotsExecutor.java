package firesteel.spark;

import java.io.File;
import java.util.Arrays;
import org.apache.spark.SparkEnv;
import org.apache.spark.executor.CoarseGrainedExecutorBackend;
import org.apache.spark.executor.CoarseGrainedExecutorBackend$;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEnv;

/** An executor whose running slots outlive the driver: it leaves when the last of them has ended. */
public final class SlotsExecutor extends CoarseGrainedExecutorBackend {
  private static final long LOOK_MILLISECONDS = 100;
  private static final long EXIT_MILLISECONDS = 5_000;

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
  }

  @Override
  public void onDisconnected(RpcAddress remote) {
    boolean isDriver = driver().isDefined() && driver().get().address().equals(remote);
    if (stopping().get() || !isDriver || slots() == 0) {
      super.onDisconnected(remote);
      return;
    }
    System.err.println("The driver at " + remote + " is gone; " + slots() + " slots go on.");
    inBackground(
        () -> {
          while (slots() > 0) {
            Thread.sleep(LOOK_MILLISECONDS);
          }
          System.err.println("The last slot has ended.");
          exit();
        });
  }

  private int slots() {
    return executor() == null ? 0 : executor().numRunningTasks();
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
          Runtime.getRuntime().halt(1);
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
