package firesteel.spark;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import org.apache.spark.serializer.DeserializationStream;
import org.apache.spark.serializer.SerializationStream;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.serializer.SerializerInstance;
import scala.reflect.ClassTag;

/**
 * Pairs of a partition and bytes, as they go through Spark's shuffle: only the bytes are written, behind their length.
 * What is written may be moved and put together as it is.
 */
public final class BlobSerializer extends Serializer implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final int BUFFER = 1 << 16;

  @Override
  public SerializerInstance newInstance() {
    return new Instance();
  }

  @Override
  public boolean supportsRelocationOfSerializedObjects() {
    return true;
  }

  private static final class Instance extends SerializerInstance {
    @Override
    public <T> ByteBuffer serialize(T value, ClassTag<T> tag) {
      throw new UnsupportedOperationException();
    }

    @Override
    public <T> T deserialize(ByteBuffer bytes, ClassTag<T> tag) {
      throw new UnsupportedOperationException();
    }

    @Override
    public <T> T deserialize(ByteBuffer bytes, ClassLoader loader, ClassTag<T> tag) {
      throw new UnsupportedOperationException();
    }

    @Override
    public SerializationStream serializeStream(OutputStream out) {
      return new Out(out);
    }

    @Override
    public DeserializationStream deserializeStream(InputStream in) {
      return new In(in);
    }
  }

  private static final class Out extends SerializationStream {
    private final DataOutputStream out;

    Out(OutputStream out) {
      this.out = new DataOutputStream(out);
    }

    @Override
    public <T> SerializationStream writeKey(T key, ClassTag<T> tag) {
      return this;
    }

    @Override
    public <T> SerializationStream writeValue(T value, ClassTag<T> tag) {
      try {
        byte[] bytes = (byte[]) value;
        out.writeInt(bytes.length);
        out.write(bytes);
        return this;
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public <T> SerializationStream writeObject(T value, ClassTag<T> tag) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void flush() {
      try {
        out.flush();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public void close() {
      try {
        out.close();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  private static final class In extends DeserializationStream {
    private final DataInputStream in;
    private int next = -1;

    In(InputStream in) {
      this.in = new DataInputStream(new BufferedInputStream(in, BUFFER));
    }

    /** The end of the stream is an EOFException, which Spark's iterators expect. */
    @Override
    @SuppressWarnings("unchecked")
    public <T> T readKey(ClassTag<T> tag) {
      try {
        next = in.readInt();
        return (T) (Object) 0L;
      } catch (EOFException end) {
        throw BlobSerializer.<RuntimeException>unchecked(end);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T readValue(ClassTag<T> tag) {
      try {
        byte[] bytes = new byte[next];
        in.readFully(bytes);
        return (T) bytes;
      } catch (IOException error) {
        throw new UncheckedIOException(new IOException("a block of the shuffle is cut off", error));
      }
    }

    @Override
    public <T> T readObject(ClassTag<T> tag) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void close() {
      try {
        in.close();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  @SuppressWarnings("unchecked")
  private static <X extends Throwable> X unchecked(Throwable error) throws X {
    throw (X) error;
  }
}
