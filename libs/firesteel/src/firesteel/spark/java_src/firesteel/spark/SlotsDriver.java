package firesteel.spark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.spark.api.python.PythonGatewayServer;

/** A driver that belongs to nobody: it ends when no Python process has been attached for some time. */
public final class SlotsDriver {
  private static final long LOOK_MILLISECONDS = 500;

  private SlotsDriver() {}

  /** Arguments: the file that an attached process holds a lock on, and for how many milliseconds nobody may. */
  public static void main(String[] arguments) throws IOException {
    FileChannel file = FileChannel.open(Path.of(arguments[0]), StandardOpenOption.READ, StandardOpenOption.WRITE);
    long patience = Long.parseLong(arguments[1]);
    System.setIn(
        new InputStream() {
          @Override
          public int read() throws IOException {
            waitForOrphanhood(file, patience);
            // Not System.exit: an orderly end would take the executors along, and running slots with them.
            Runtime.getRuntime().halt(0);
            return -1;
          }
        });
    PythonGatewayServer.main(new String[0]); // reads its standard input until that ends
  }

  /** Returns with the lock held: whoever would attach from now on sees that it is too late. */
  private static void waitForOrphanhood(FileChannel file, long patience) throws IOException {
    long alone = 0;
    long before = System.nanoTime();
    while (true) {
      FileLock lock = file.tryLock();
      long now = System.nanoTime();
      alone = lock == null ? 0 : alone + (now - before) / 1_000_000;
      before = now;
      if (lock != null && alone >= patience) {
        System.err.println("Nobody has been attached for " + alone + " ms: the driver ends.");
        return;
      }
      if (lock != null) {
        lock.release();
      }
      try {
        Thread.sleep(Math.min(LOOK_MILLISECONDS, Math.max(1, patience / 4)));
      } catch (InterruptedException stopped) {
        return;
      }
    }
  }
}
