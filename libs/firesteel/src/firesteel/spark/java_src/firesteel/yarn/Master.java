package firesteel.yarn;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.yarn.api.protocolrecords.RegisterApplicationMasterResponse;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ContainerLaunchContext;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;
import org.apache.hadoop.yarn.api.records.NodeReport;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.UpdatedContainer;
import org.apache.hadoop.yarn.client.api.AMRMClient.ContainerRequest;
import org.apache.hadoop.yarn.client.api.NMClient;
import org.apache.hadoop.yarn.client.api.async.AMRMClientAsync;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.exceptions.YarnException;

/**
 * The registration of an attempt with YARN, and its containers. One can register only once, so this lives as long as the
 * attempt, while the Python processes that use it come and go.
 *
 * <p>A container is asked for by a number, which YARN gives back with it, also to a later attempt: so it is always known
 * which container is which worker.
 */
public final class Master extends AMRMClientAsync.AbstractCallbackHandler {
  private static final int THREADS = 8;
  private static Master current;

  private final AMRMClientAsync<ContainerRequest> client;
  private final NMClient nodes = NMClient.createNMClient();
  private final ExecutorService threads = Executors.newFixedThreadPool(THREADS, Master::daemon);
  private final int calmInterval;
  private final int hurryInterval;
  private final Map<Long, Worker> workers = new LinkedHashMap<>();
  private final Map<ContainerId, Worker> byContainer = new HashMap<>();
  private final Deque<String> events = new ArrayDeque<>();
  private String failure = "";
  private Resource maximum;

  private static final class Worker {
    final long number;
    ContainerRequest request;
    ContainerLaunchContext launch;
    Container container;
    boolean stopping;

    Worker(long number) {
      this.number = number;
    }
  }

  private Master(int calmInterval, int hurryInterval) {
    this.calmInterval = calmInterval;
    this.hurryInterval = hurryInterval;
    YarnConfiguration configuration = new YarnConfiguration();
    client = AMRMClientAsync.createAMRMClientAsync(calmInterval, this);
    client.init(configuration);
    client.start();
    nodes.cleanupRunningContainersOnStop(false); // they are the next attempt's
    nodes.init(configuration);
    nodes.start();
  }

  private static Thread daemon(Runnable work) {
    Thread made = new Thread(work, "containers");
    made.setDaemon(true);
    return made;
  }

  /** Begin; intervals are milliseconds between heartbeats, the second while containers are waited for. */
  public static synchronized Master begin(int calmInterval, int hurryInterval) {
    if (current == null) {
      current = new Master(calmInterval, hurryInterval);
    }
    return current;
  }

  /** The one of this JVM; null before it has begun. */
  public static synchronized Master current() {
    return current;
  }

  /** Present the attempt to YARN, and learn which containers those before it have left. */
  public void register(String host, int port, String url) throws YarnException, IOException {
    RegisterApplicationMasterResponse answer = client.registerApplicationMaster(host, port, url);
    synchronized (this) {
      maximum = answer.getMaximumResourceCapability();
    }
    onContainersReceivedFromPreviousAttempts(answer.getContainersFromPreviousAttempts());
  }

  /** The largest container that there is: megabytes and cores. */
  public synchronized String maximum() {
    return maximum.getMemorySize() + " " + maximum.getVirtualCores();
  }

  public void showAt(String url) {
    client.updateTrackingUrl(url);
  }

  /** Why YARN wants this attempt no more; empty while it does. */
  public synchronized String failure() {
    return failure;
  }

  public void unregister(String status, String diagnostics, String url) throws YarnException, IOException {
    client.unregisterApplicationMaster(FinalApplicationStatus.valueOf(status), diagnostics, url);
  }

  // -- containers

  /** Ask for a container, in which this is started as soon as it is there. One that was asked for already stays. */
  public synchronized void request(
      long number, int megabytes, int cores, String label, int priority, ContainerLaunchContext launch) {
    if (workers.containsKey(number)) {
      return;
    }
    Worker worker = new Worker(number);
    worker.launch = launch;
    worker.request =
        new ContainerRequest(
            Resource.newInstance(megabytes, cores),
            null,
            null,
            Priority.newInstance(priority),
            number,
            true,
            label.isEmpty() ? null : label);
    workers.put(number, worker);
    client.addContainerRequest(worker.request);
    setPace();
  }

  /** Have a container end, or no longer wait for it. Asked again, YARN takes it away. */
  public synchronized void stop(long number) {
    Worker worker = workers.get(number);
    if (worker == null) {
      return;
    }
    if (worker.container == null) {
      forget(worker);
      ended(worker, "", "", 0, "it was not needed any more");
    } else if (worker.stopping) {
      client.releaseAssignedContainer(worker.container.getId());
    } else {
      worker.stopping = true;
      Container container = worker.container;
      threads.execute(() -> stopNow(container));
    }
  }

  private void stopNow(Container container) {
    try {
      nodes.stopContainer(container.getId(), container.getNodeId());
    } catch (Exception error) {
      client.releaseAssignedContainer(container.getId());
    }
  }

  /** One line for each worker: number, container or -, node or -. */
  public synchronized String workers() {
    StringBuilder lines = new StringBuilder();
    for (Worker worker : workers.values()) {
      lines.append(worker.number).append('\t');
      lines.append(worker.container == null ? "-" : worker.container.getId()).append('\t');
      lines.append(worker.container == null ? "-" : worker.container.getNodeId()).append('\n');
    }
    return lines.toString();
  }

  /**
   * What has happened since the last call, a line each: "allocated", number, container, node; "ended", number,
   * container, node, exit status, diagnostics; "node", node, state.
   */
  public synchronized String takeEvents() {
    String lines = String.join("\n", events);
    events.clear();
    return lines;
  }

  public void exclude(List<String> more, List<String> less) {
    client.updateBlacklist(more, less);
  }

  public String available() {
    Resource found = client.getAvailableResources();
    return found == null ? "" : found.getMemorySize() + " " + found.getVirtualCores();
  }

  private void event(Object... words) {
    List<String> texts = new ArrayList<>();
    for (Object word : words) {
      texts.add(String.valueOf(word).replaceAll("[\\t\\r\\n]+", " "));
    }
    events.add(String.join("\t", texts));
  }

  private void ended(Worker worker, Object container, Object node, int status, String diagnostics) {
    event("ended", worker.number, container, node, status, diagnostics == null ? "" : diagnostics);
  }

  private void forget(Worker worker) {
    workers.remove(worker.number);
    if (worker.container != null) {
      byContainer.remove(worker.container.getId());
    }
    if (worker.request != null) { // else it is sent again when YARN's ResourceManager was away
      client.removeContainerRequest(worker.request);
      worker.request = null;
    }
    setPace();
  }

  private void setPace() {
    boolean waits = workers.values().stream().anyMatch(worker -> worker.container == null);
    client.setHeartbeatInterval(waits ? hurryInterval : calmInterval);
  }

  // -- what YARN says

  @Override
  public synchronized void onContainersAllocated(List<Container> containers) {
    for (Container container : containers) {
      Worker worker = workers.get(container.getAllocationRequestId());
      if (worker == null || worker.container != null) { // more than were asked for
        client.releaseAssignedContainer(container.getId());
        continue;
      }
      client.removeContainerRequest(worker.request);
      worker.request = null;
      worker.container = container;
      byContainer.put(container.getId(), worker);
      event("allocated", worker.number, container.getId(), container.getNodeId());
      threads.execute(() -> launch(worker, container));
    }
    setPace();
  }

  private void launch(Worker worker, Container container) {
    try {
      nodes.startContainer(container, worker.launch);
      worker.launch = null;
    } catch (Exception error) {
      client.releaseAssignedContainer(container.getId());
      synchronized (this) {
        if (byContainer.get(container.getId()) == worker) {
          forget(worker);
          ended(worker, container.getId(), container.getNodeId(), -1000, "it could not be started: " + error);
        }
      }
    }
  }

  @Override
  public synchronized void onContainersReceivedFromPreviousAttempts(List<Container> containers) {
    for (Container container : containers) {
      long number = container.getAllocationRequestId();
      if (number <= 0 || workers.containsKey(number)) {
        client.releaseAssignedContainer(container.getId());
        continue;
      }
      Worker worker = new Worker(number);
      worker.container = container;
      workers.put(number, worker);
      byContainer.put(container.getId(), worker);
      event("recovered", number, container.getId(), container.getNodeId());
    }
  }

  @Override
  public synchronized void onContainersCompleted(List<ContainerStatus> statuses) {
    for (ContainerStatus status : statuses) {
      Worker worker = byContainer.get(status.getContainerId());
      if (worker != null) {
        Container container = worker.container;
        forget(worker);
        ended(worker, container.getId(), container.getNodeId(), status.getExitStatus(), status.getDiagnostics());
      }
    }
  }

  @Override
  public void onContainersUpdated(List<UpdatedContainer> containers) {
    // sizes are never changed
  }

  @Override
  public synchronized void onNodesUpdated(List<NodeReport> reports) {
    for (NodeReport report : reports) {
      event("node", report.getNodeId(), report.getNodeState());
    }
  }

  @Override
  public synchronized void onShutdownRequest() {
    failure = "YARN's ResourceManager does not know this attempt any more";
  }

  @Override
  public synchronized void onError(Throwable error) {
    failure = String.valueOf(error);
  }

  @Override
  public float getProgress() {
    return 0;
  }
}
