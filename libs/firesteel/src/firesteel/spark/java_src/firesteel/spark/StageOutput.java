package firesteel.spark;

import java.nio.ByteBuffer;
import java.util.NoSuchElementException;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.AbstractIterator;
import scala.reflect.ClassTag$;

/**
 * What the tasks of a stage give: partition and bytes in turn. What is for partition -1 is not given on: it tells how many
 * records and bytes the task has read and written so far, which become metrics of Spark's task.
 */
final class StageOutput extends RDD<byte[]> {
  private static final long serialVersionUID = 1L;
  private static final long METRICS = -1;

  StageOutput(RDD<byte[]> tasks) {
    super(tasks, ClassTag$.MODULE$.apply(byte[].class));
  }

  @Override
  public Partition[] getPartitions() {
    return parent().partitions();
  }

  @Override
  public Iterator<byte[]> compute(Partition split, TaskContext context) {
    return new Given(parent().iterator(split, context), context.taskMetrics());
  }

  private RDD<byte[]> parent() {
    return this.<byte[]>firstParent(ClassTag$.MODULE$.apply(byte[].class));
  }

  private static final class Given extends AbstractIterator<byte[]> {
    private final Iterator<byte[]> given;
    private final TaskMetrics metrics;
    private byte[] partition = null;
    private byte[] blob = null;
    private long spilled = 0;

    Given(Iterator<byte[]> given, TaskMetrics metrics) {
      this.given = given;
      this.metrics = metrics;
    }

    @Override
    public boolean hasNext() {
      while (partition == null && blob == null && given.hasNext()) {
        byte[] first = given.next();
        byte[] second = given.next();
        if (ByteBuffer.wrap(first).getLong() == METRICS) {
          tell(ByteBuffer.wrap(second));
        } else {
          partition = first;
          blob = second;
        }
      }
      return partition != null || blob != null;
    }

    @Override
    public byte[] next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      byte[] found = partition == null ? blob : partition;
      if (partition == null) {
        blob = null;
      }
      partition = null;
      return found;
    }

    /** Records and bytes read, records and bytes written, bytes that the task itself has spilled to disk. */
    private void tell(ByteBuffer totals) {
      metrics.inputMetrics().setRecordsRead(totals.getLong());
      metrics.inputMetrics().setBytesRead(totals.getLong());
      metrics.outputMetrics().setRecordsWritten(totals.getLong());
      metrics.outputMetrics().setBytesWritten(totals.getLong());
      long now = totals.getLong();
      metrics.incDiskBytesSpilled(now - spilled);
      spilled = now;
    }
  }
}
