package firesteel.spark;

import java.util.ArrayList;
import java.util.List;

/** How many tasks a stage gets, and which adjacent partitions each of them reads, by their sizes. Decides; no I/O. */
public final class StageTasks {
  private StageTasks() {}

  /**
   * Where tasks begin; the first one begins with partition 0, the last one ends with the last partition.
   *
   * <p>There are as many tasks as the volume fills, but no fewer than `least` and no more than `most`, and never more than
   * there are partitions with anything in them. Among so many tasks, the largest one is as small as can be.
   *
   * @param sizes bytes of each partition.
   * @param volume bytes that a task is meant to read.
   */
  public static int[] starts(long[] sizes, int least, int most, long volume) {
    long total = 0;
    long largest = 0;
    int filled = 0;
    for (long size : sizes) {
      total += size;
      largest = Math.max(largest, size);
      filled += size > 0 ? 1 : 0;
    }
    long wanted = Math.max(least, total / volume + (total % volume == 0 ? 0 : 1));
    int count = (int) Math.max(1, Math.min(filled, Math.min(most, wanted)));
    long low = Math.max(largest, total / count);
    long high = total;
    while (low < high) {
      long middle = low + (high - low) / 2;
      if (cut(sizes, middle).size() <= count) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return cut(sizes, low).stream().mapToInt(Integer::intValue).toArray();
  }

  /** Each task takes what it can hold; partitions without anything go to whoever is there. */
  private static List<Integer> cut(long[] sizes, long capacity) {
    List<Integer> starts = new ArrayList<>(List.of(0));
    long held = 0;
    for (int i = 0; i < sizes.length; i++) {
      if (held > 0 && held + sizes[i] > capacity) {
        starts.add(i);
        held = 0;
      }
      held += sizes[i];
    }
    return starts;
  }
}
