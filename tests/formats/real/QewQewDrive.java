// The real QewQew under commands: one per line, an answer of any number of "item" lines and one "ok" or "error" line.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import tel.schich.qewqew.SimpleQewQew;

public class QewQewDrive {
    static byte[] bytes(String hex) {
        if (hex.equals("-")) return new byte[0];
        byte[] found = new byte[hex.length() / 2];
        for (int i = 0; i < found.length; i++) found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        return found;
    }

    static String hex(byte[] data) {
        if (data.length == 0) return "-";
        StringBuilder text = new StringBuilder();
        for (byte b : data) text.append(String.format("%02x", b));
        return text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        SimpleQewQew queue = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] w = line.split(" ");
            try {
                String answer = "";
                switch (w[0]) {
                    case "open": queue = new SimpleQewQew(Path.of(w[1]), Long.parseLong(w[2])); break;
                    case "put": queue.enqueue(bytes(w[1])); break;
                    case "dequeue": answer = "" + queue.dequeue(); break;
                    case "clear": queue.clear(); break;
                    case "close": queue.close(); break;
                    case "drain":
                        try {
                            for (int most = Integer.parseInt(w[1]); most > 0 && !queue.isEmpty(); most--) {
                                System.out.println("item " + hex(queue.peek()));
                                queue.dequeue();
                            }
                        } catch (RuntimeException problem) { // what it has delivered until then counts
                            answer = "failed " + problem.getClass().getSimpleName();
                        }
                        break;
                    default: throw new IllegalArgumentException(line);
                }
                System.out.println("ok " + answer);
            } catch (Throwable problem) {
                System.out.println("error " + problem.toString().replace('\n', ' '));
            }
            System.out.flush();
        }
    }
}
