package firesteel.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.classic.DataFrameReader;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * What the tasks of a stage read that has a query of Spark SQL in front of it: the rows of its result, as messages with
 * Arrow's record batches. Its partitions are known once {@link #prepare} has run the query's own stages.
 */
final class QueryInput extends RDD<byte[]> {
  private static final long serialVersionUID = 1L;
  /** Steps of a recursion whose rows are put together at a time. */
  private static final int STEPS_OF_A_PLAN = 16;

  private static final List<String> CALLS_OF_JAVA = List.of("reflect", "java_method", "try_reflect");

  private static final Map<SparkContext, SparkSession> SESSIONS = new HashMap<>();

  private final transient Query query;
  private transient RDD<byte[]> batches = null;

  /** A table that Spark reads itself. */
  record Table(String name, String format, String columns, Map<String, String> options, List<String> files) {}

  /** A table that is computed step by step, each one over the rows that are new since the last. */
  record Recursion(String name, String working, String first, String step, boolean keepsDuplicates) {}

  /**
   * A query.
   *
   * @param text in Spark's SQL, over the names of tables and recursions.
   * @param maxIterations steps of a recursion after which it fails.
   * @param partitions how many tasks give its results, at most.
   */
  record Query(
      String text,
      Map<String, String> settings,
      List<Table> tables,
      List<Recursion> recursions,
      int maxIterations,
      int partitions) {}

  QueryInput(SparkContext spark, Query query) {
    super(spark, seq(List.of()), ClassTag$.MODULE$.apply(byte[].class));
    this.query = query;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static Seq<Dependency<?>> seq(List deps) {
    return CollectionConverters.asScala(new ArrayList(deps)).toSeq();
  }

  synchronized boolean isPrepared() {
    return batches != null;
  }

  /** Plans the query, and runs all of its stages but the last one, whose tasks are those that read its result. */
  void prepare() {
    SparkSession session = session(sparkContext());
    query.settings().forEach((key, value) -> session.conf().set(key, value));
    for (Table table : query.tables()) {
      rows(session, table).createOrReplaceTempView(table.name());
    }
    for (Recursion recursion : query.recursions()) {
      compute(session, recursion);
    }
    Dataset<Row> result = result(session, query.text());
    RDD<byte[]> found = result.toArrowBatchRdd();
    if (found.getNumPartitions() == 0) { // Spark runs no stage without tasks, and what is behind this one has to end
      found = new JavaSparkContext(sparkContext()).parallelize(List.<byte[]>of(), 1).rdd();
    } else if (found.getNumPartitions() > query.partitions()) {
      found = found.toJavaRDD().coalesce(query.partitions()).rdd();
    }
    synchronized (this) {
      batches = found;
    }
  }

  /** In parentheses nothing but a query can stand, so a text can't be a command. */
  private static Dataset<Row> result(SparkSession session, String text) {
    return session.sql("SELECT * FROM (" + text + "\n)");
  }

  /** Computes a recursion to its end. Checkpoints cut off plans, which would grow with each step. */
  private void compute(SparkSession session, Recursion recursion) {
    Dataset<Row> rows = result(session, recursion.first());
    rows = (recursion.keepsDuplicates() ? rows : rows.distinct()).localCheckpoint();
    Dataset<Row> all = rows;
    for (int step = 1; !rows.isEmpty(); step++) {
      if (step > query.maxIterations()) {
        throw new IllegalStateException(
            "WITH RECURSIVE has not ended after "
                + query.maxIterations()
                + " steps ('table.exec.recursion.max-iterations'): does a condition end it?");
      }
      rows.createOrReplaceTempView(recursion.working());
      rows = result(session, recursion.step());
      rows = (recursion.keepsDuplicates() ? rows : rows.distinct().except(all)).localCheckpoint();
      all = all.union(rows);
      if (step % STEPS_OF_A_PLAN == 0) {
        all = all.coalesce(query.partitions()).localCheckpoint();
      }
    }
    all.createOrReplaceTempView(recursion.name());
  }

  private static Dataset<Row> rows(SparkSession session, Table table) {
    if (table.files().isEmpty()) {
      return session.createDataFrame(List.<Row>of(), org.apache.spark.sql.types.StructType.fromDDL(table.columns()));
    }
    DataFrameReader reader = session.read().schema(table.columns()).format(table.format());
    table.options().forEach(reader::option);
    return reader.load(CollectionConverters.asScala(table.files()).toSeq());
  }

  /**
   * A session of its own, since settings and names of tables are those of a query. A query is planned in the driver, so
   * it has none of the functions that call methods of Java, reads no files but those of its tables, and no variables of
   * the driver's environment: <code>${env:HOME}</code> in a text is that text.
   */
  private static SparkSession session(SparkContext spark) {
    SparkSession session;
    synchronized (SESSIONS) {
      SESSIONS.keySet().removeIf(SparkContext::isStopped);
      session = SESSIONS.computeIfAbsent(spark, context -> new SparkSession(context, new HashMap<>())).newSession();
    }
    for (String name : CALLS_OF_JAVA) {
      FunctionIdentifier function = new FunctionIdentifier(name, Option.apply("builtin"), Option.apply("system"));
      if (!session.sessionState().functionRegistry().dropFunction(function)) {
        throw new IllegalStateException("Spark knows " + name + " by another name");
      }
    }
    session.conf().set("spark.sql.runSQLOnFiles", "false");
    session.conf().set("spark.sql.variable.substitute", "false");
    return session;
  }

  @Override
  public Seq<Dependency<?>> getDependencies() {
    return seq(List.of(new OneToOneDependency<>(batches)));
  }

  /** PySpark asks for it when nothing is known of the query. */
  @Override
  public boolean isBarrier() {
    return false;
  }

  @Override
  public Partition[] getPartitions() {
    return batches.partitions();
  }

  @Override
  public Iterator<byte[]> compute(Partition partition, TaskContext context) {
    @SuppressWarnings("unchecked")
    RDD<byte[]> parent = (RDD<byte[]>) dependencies().head().rdd();
    return parent.iterator(partition, context);
  }
}
