// The real Chronicle Queue under commands: one per line, an answer of any number of "item" lines and one "ok" or
// "error" line. A value is a word of the kind `i64:5`, `text:HEX`, `map( a i8:1 )`, `seq( null )`; see `write`.
package shmq;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.bytes.BytesStore;
import net.openhft.chronicle.bytes.MethodReader;
import net.openhft.chronicle.core.time.SetTimeProvider;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.RollCycle;
import net.openhft.chronicle.queue.RollCycles;
import net.openhft.chronicle.queue.TailerDirection;
import net.openhft.chronicle.queue.impl.RollingResourcesCache;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.BinaryMethodWriterInvocationHandler;
import net.openhft.chronicle.wire.BinaryWire;
import net.openhft.chronicle.wire.DocumentContext;
import net.openhft.chronicle.wire.SelfDescribingMarshallable;
import net.openhft.chronicle.wire.TextWire;
import net.openhft.chronicle.wire.ValueIn;
import net.openhft.chronicle.wire.ValueOut;
import net.openhft.chronicle.wire.VanillaMessageHistory;
import net.openhft.chronicle.wire.VanillaMethodWriterBuilder;
import net.openhft.chronicle.wire.Wire;
import net.openhft.chronicle.wire.WireOut;
import net.openhft.chronicle.wire.WireType;
import net.openhft.chronicle.wire.WriteMarshallable;

public class Chronicle {
    public interface Calls {
        void say(String text);
        void count(long number);
        void weigh(double number);
        void order(Order order);
        void pair(String text, int number);
        void stop();
    }

    public static class Order extends SelfDescribingMarshallable {
        String symbol;
        long quantity;
        double price;
        boolean buy;
    }

    static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);
    static SingleChronicleQueue queue;
    static ExcerptAppender appender;
    static SetTimeProvider clock;
    static DocumentContext open;
    static String[] words;
    static int at;

    // ------------------------------------------------------------------------------------------ words
    static byte[] bytes(String hex) {
        byte[] found = new byte[hex.equals("-") ? 0 : hex.length() / 2];
        for (int i = 0; i < found.length; i++) found[i] = (byte) Integer.parseInt(hex, 2 * i, 2 * i + 2, 16);
        return found;
    }

    static String text(String hex) { // UTF-16, so that half a pair of surrogates is possible
        return new String(bytes(hex), StandardCharsets.UTF_16BE);
    }

    static String hex(byte[] data) {
        StringBuilder found = new StringBuilder(data.length == 0 ? "-" : "");
        for (byte b : data) found.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        return found.toString();
    }

    static String hex(CharSequence data) {
        return hex(data.toString().getBytes(StandardCharsets.UTF_16BE));
    }

    static String next() {
        return words[at++];
    }

    static long number() {
        return Long.parseLong(next());
    }

    static long index() {
        return Long.parseUnsignedLong(next(), 16);
    }

    static boolean more() {
        return at < words.length && !words[at].equals(")");
    }

    static void item(Object... parts) {
        StringBuilder line = new StringBuilder("item");
        for (Object part : parts) line.append(' ').append(part);
        OUT.println(line);
    }

    // ------------------------------------------------------------------------------------------ values
    static void pairs(WireOut wire, boolean events) {
        while (more()) {
            String name = text(next());
            value(events ? wire.writeEventName(name) : wire.write(name));
        }
    }

    static void value(ValueOut out) {
        String word = next();
        int colon = word.indexOf(':');
        String kind = colon < 0 ? word : word.substring(0, colon);
        String rest = word.substring(colon + 1);
        switch (kind) {
            case "i8": out.int8(Byte.parseByte(rest)); break;
            case "u8": out.uint8(Integer.parseInt(rest)); break;
            case "i16": out.int16(Short.parseShort(rest)); break;
            case "u16": out.uint16(Integer.parseInt(rest)); break;
            case "i32": out.int32(Integer.parseInt(rest)); break;
            case "u32": out.uint32(Long.parseLong(rest)); break;
            case "i64": out.int64(Long.parseLong(rest)); break;
            case "hex64": out.int64_0x(Long.parseLong(rest)); break;
            case "f32": out.float32(Float.intBitsToFloat(Integer.parseUnsignedInt(rest, 16))); break;
            case "f64": out.float64(Double.longBitsToDouble(Long.parseUnsignedLong(rest, 16))); break;
            case "bool": out.bool(rest.equals("null") ? null : Boolean.valueOf(rest)); break;
            case "null": out.text((String) null); break;
            case "text": out.text(text(rest)); break;
            case "char": out.text(text(rest).charAt(0)); break;
            case "bytes": out.bytes(bytes(rest)); break;
            case "date": out.date(LocalDate.parse(rest)); break;
            case "time": out.time(LocalTime.parse(rest)); break;
            case "datetime": out.dateTime(LocalDateTime.parse(rest)); break;
            case "zoned": out.zonedDateTime(ZonedDateTime.parse(rest)); break;
            case "uuid": out.uuid(UUID.fromString(rest)); break;
            case "type": out.typeLiteral(rest); break;
            case "bind64": out.int64forBinding(Long.parseLong(rest)); break;
            case "array": out.int64array(Long.parseLong(rest)); break;
            case "object": out.object(Yaml.of(text(rest))); break;
            case "typed": out.typePrefix(rest); value(out); break;
            case "seq(": out.sequence(out, (o, inner) -> { while (more()) value(inner); }); at++; break;
            case "map(": out.marshallable((WriteMarshallable) inner -> pairs(inner, false)); at++; break;
            default: throw new IllegalArgumentException(word);
        }
    }

    static final class Yaml {
        static Object of(String text) {
            return TextWire.from(text).getValueIn().object();
        }
    }

    static Map<String, Object> mapping() {
        Map<String, Object> found = new LinkedHashMap<>();
        while (more()) {
            String name = text(next());
            found.put(name, thing());
        }
        return found;
    }

    /** A value as an object of Java. */
    static Object thing() {
        String word = next();
        String rest = word.substring(word.indexOf(':') + 1);
        switch (word.substring(0, Math.max(0, word.indexOf(':')))) {
            case "i8": return Byte.valueOf(rest);
            case "i16": return Short.valueOf(rest);
            case "i32": return Integer.valueOf(rest);
            case "i64": return Long.valueOf(rest);
            case "f32": return Float.intBitsToFloat(Integer.parseUnsignedInt(rest, 16));
            case "f64": return Double.longBitsToDouble(Long.parseUnsignedLong(rest, 16));
            case "bool": return rest.equals("null") ? null : Boolean.valueOf(rest);
            case "text": return text(rest);
            case "bytes": return bytes(rest);
            case "date": return LocalDate.parse(rest);
            case "time": return LocalTime.parse(rest);
            case "datetime": return LocalDateTime.parse(rest);
            case "zoned": return ZonedDateTime.parse(rest);
            case "uuid": return UUID.fromString(rest);
            default: break;
        }
        if (word.equals("null")) return null;
        if (word.equals("map(")) {
            Map<String, Object> found = mapping();
            at++;
            return found;
        }
        if (!word.equals("seq(")) throw new IllegalArgumentException(word);
        List<Object> found = new ArrayList<>();
        while (more()) found.add(thing());
        at++;
        return found;
    }

    /** What is in a document, in the words that the rest of the line asks for. */
    static void write(WireOut wire) {
        String kind = next();
        switch (kind) {
            case "raw": wire.bytes().write(bytes(next())); break;
            case "values": while (more()) value(wire.getValueOut()); break;
            case "fields": pairs(wire, false); break;
            case "events": pairs(wire, true); break;
            case "comment": wire.writeComment(text(next())); pairs(wire, false); break;
            case "nothing": break;
            case "history":
                history(wire, (int) number());
                pairs(wire, true);
                break;
            default: throw new IllegalArgumentException(kind);
        }
    }

    static void history(WireOut wire, int count) {
        VanillaMessageHistory history = new VanillaMessageHistory();
        history.addSourceDetails(false);
        for (int i = 0; i < count; i++) {
            history.addSource(i + 1, i * 77L << 32);
            history.addTiming(i * 1_000_000_007L);
        }
        wire.writeEventId(MethodReader.MESSAGE_HISTORY_METHOD_ID).marshallable(history);
    }

    static void call(Calls calls) {
        String name = next();
        switch (name) {
            case "say": calls.say(text(next())); break;
            case "count": calls.count(number()); break;
            case "weigh": calls.weigh(Double.longBitsToDouble(Long.parseUnsignedLong(next(), 16))); break;
            case "pair": calls.pair(text(next()), (int) number()); break;
            case "stop": calls.stop(); break;
            case "order":
                Order order = new Order();
                order.symbol = text(next());
                order.quantity = number();
                order.price = number() / 8.0;
                order.buy = number() != 0;
                calls.order(order);
                break;
            default: throw new IllegalArgumentException(name);
        }
    }

    // ------------------------------------------------------------------------------------------ the queue
    static RollCycle rollCycle(String name) {
        for (RollCycle cycle : RollCycles.all()) if (cycle.toString().equals(name)) return cycle;
        throw new IllegalArgumentException(name);
    }

    static void open() {
        SingleChronicleQueueBuilder builder = SingleChronicleQueueBuilder.binary(next()).blockSize(1 << 16);
        clock = null;
        while (more()) {
            String word = next();
            String given = word.substring(word.indexOf('=') + 1);
            switch (word.substring(0, word.indexOf('='))) {
                case "cycle": builder.rollCycle(rollCycle(given)); break;
                case "time": builder.rollTime(LocalTime.parse(given), ZoneId.of("UTC")); break;
                case "epoch": builder.epoch(Long.parseLong(given)); break;
                case "count": builder.indexCount(Integer.parseInt(given)); break;
                case "spacing": builder.indexSpacing(Integer.parseInt(given)); break;
                case "block": builder.blockSize(Long.parseLong(given)); break;
                case "source": builder.sourceId(Integer.parseInt(given)); break;
                case "timeout": builder.timeoutMS(Long.parseLong(given)); break;
                case "readonly": builder.readOnly(true); break;
                case "double": builder.doubleBuffer(true); break;
                case "clock": clock = new SetTimeProvider(1_000_000L * Long.parseLong(given)); break;
                default: throw new IllegalArgumentException(word);
            }
        }
        if (clock != null) builder.timeProvider(clock);
        queue = builder.build();
    }

    static void close() {
        if (open != null) {
            open.rollbackOnClose();
            open.close();
        }
        open = null;
        appender = null;
        if (queue != null) queue.close();
        queue = null;
    }

    static ExcerptAppender appender() {
        if (appender == null) appender = queue.createAppender();
        return appender;
    }

    /** A method writer through the one appender: two of one process may count differently after a rollback. */
    static Calls calls() {
        VanillaMethodWriterBuilder<Calls> builder = new VanillaMethodWriterBuilder<>(Calls.class, WireType.BINARY_LIGHT,
                () -> new BinaryMethodWriterInvocationHandler(Calls.class, false, Chronicle::appender));
        return builder.marshallableOutSupplier(Chronicle::appender).build();
    }

    static String put() {
        String kind = words[at];
        switch (kind) {
            case "bytes": at++; appender().writeBytes(Bytes.wrapForRead(bytes(next()))); break;
            case "text": at++; appender().writeText(text(next())); break;
            case "map": at++; appender().writeMap(mapping()); break;
            case "call":
                at++;
                call(calls());
                break;
            case "meta":
            case "rollback":
                at++;
                try (DocumentContext document = appender().writingDocument(kind.equals("meta"))) {
                    write(document.wire());
                    if (kind.equals("rollback")) document.rollbackOnClose();
                }
                return "";
            default:
                try (DocumentContext document = appender().writingDocument()) {
                    write(document.wire());
                }
        }
        return Long.toHexString(appender().lastIndexAppended());
    }

    /** Append PREFIX 0, PREFIX 1, ... and say each index when it is there; COUNT 0 is for ever. */
    static void many(String prefix, long count, long pauseMicros, long advance) throws Exception {
        for (long k = 0; count == 0 || k < count; k++) {
            Bytes<byte[]> message = Bytes.wrapForRead((prefix + " " + k).getBytes(StandardCharsets.ISO_8859_1));
            appender().writeBytes(message);
            item(Long.toHexString(appender().lastIndexAppended()), k);
            OUT.flush();
            if (pauseMicros > 0) Thread.sleep(pauseMicros / 1000, (int) (pauseMicros % 1000) * 1000);
            if (clock != null) clock.advanceMillis(advance);
        }
    }

    static boolean one(ExcerptTailer tailer, boolean meta) {
        try (DocumentContext document = tailer.readingDocument(meta)) {
            if (!document.isPresent()) return false;
            Bytes<?> found = document.wire().bytes();
            byte[] data = new byte[(int) found.readRemaining()];
            found.read(data);
            String kind = document.isMetaData() ? "meta" : Long.toHexString(document.index());
            item(kind, hex(data));
            return true;
        }
    }

    static String read(ExcerptTailer tailer, long most, boolean meta) {
        while (most-- > 0 && one(tailer, meta)) { }
        return place(tailer);
    }

    static String place(ExcerptTailer tailer) {
        return Long.toHexString(tailer.index()) + " " + tailer.state();
    }

    /** Print what comes, as it comes, until so many have come; 0 is for ever. */
    static void follow(ExcerptTailer tailer, long count) throws Exception {
        for (long k = 0; count == 0 || k < count; ) {
            if (one(tailer, false)) {
                OUT.flush();
                k++;
            } else {
                Thread.sleep(1);
            }
        }
    }

    static ExcerptTailer tailer(String name) {
        return name.equals("-") ? queue.createTailer() : queue.createTailer(name);
    }

    static String tail() throws Exception {
        String how = next();
        try (ExcerptTailer tailer = tailer(next())) {
            switch (how) {
                case "forward": return read(tailer, number(), false);
                case "meta": return read(tailer, number(), true);
                case "backward": return read(tailer.direction(TailerDirection.BACKWARD).toEnd(), number(), false);
                case "end": return place(tailer.toEnd());
                case "start": return place(tailer.toStart());
                case "place": return place(tailer);
                case "cycle": return tailer.moveToCycle((int) number()) + " " + read(tailer, number(), false);
                case "from": return tailer.moveToIndex(index()) + " " + read(tailer, number(), false);
                case "back": {
                    tailer.direction(TailerDirection.BACKWARD);
                    return tailer.moveToIndex(index()) + " " + read(tailer, number(), false);
                }
                case "seek":
                    while (more()) item(tailer.moveToIndex(index()), place(tailer));
                    return "";
                case "follow": follow(tailer, number()); return "";
                default: throw new IllegalArgumentException(how);
            }
        }
    }

    /** The file name of each cycle, and the cycle that its name is taken for. */
    static void names() {
        RollCycle cycle = rollCycle(next());
        RollingResourcesCache names = new RollingResourcesCache(cycle, number(), File::new, File::getName);
        while (more()) {
            String name = names.resourceFor(number()).text;
            item(name, names.parseCount(name));
        }
    }

    static String extent() {
        return Long.toHexString(queue.firstIndex()) + " " + Long.toHexString(queue.lastIndex()) + " " + queue.entryCount();
    }

    // ------------------------------------------------------------------------------------------ wires alone
    static String encode() {
        Wire wire = new BinaryWire(Bytes.allocateElasticOnHeap());
        wire.usePadding(true);
        write(wire);
        return hex(wire.bytes().toByteArray());
    }

    static String asText(byte[] payload) {
        Bytes<?> out = Bytes.allocateElasticOnHeap();
        new BinaryWire(Bytes.wrapForRead(payload)).copyTo(new TextWire(out));
        return hex(out.toString());
    }

    static String spell(Object value) {
        if (value == null) return "null";
        if (value instanceof Map) {
            StringBuilder found = new StringBuilder("map(");
            ((Map<?, ?>) value).forEach((k, v) -> found.append(' ').append(hex("" + k)).append(' ').append(spell(v)));
            return found + " )";
        }
        if (value instanceof Iterable) {
            StringBuilder found = new StringBuilder("seq(");
            for (Object one : (Iterable<?>) value) found.append(' ').append(spell(one));
            return found + " )";
        }
        if (value instanceof Object[]) return spell(java.util.Arrays.asList((Object[]) value));
        if (value instanceof byte[]) return "bytes:" + hex((byte[]) value);
        if (value instanceof BytesStore) return "bytes:" + hex(((BytesStore<?, ?>) value).toByteArray());
        if (value instanceof Double) return "f64:" + Long.toHexString(Double.doubleToRawLongBits((Double) value));
        if (value instanceof Float) return "f64:" + Long.toHexString(Double.doubleToRawLongBits((Float) value));
        if (value instanceof Number) return "int:" + value;
        if (value instanceof Boolean) return "bool:" + value;
        if (value instanceof CharSequence) return "text:" + hex((CharSequence) value);
        return "other:" + value.getClass().getName() + ":" + hex(value.toString());
    }

    /** What Java takes a text or a payload for: the value of each of its fields, or its bare values. */
    static void objects(Wire wire, boolean bare) {
        while (wire.hasMore()) {
            if (bare) {
                item("value", spell(wire.getValueIn().object()));
                continue;
            }
            StringBuilder name = new StringBuilder();
            ValueIn in = wire.readEventName(name);
            item(hex(name), spell(in.object()));
        }
    }

    // ------------------------------------------------------------------------------------------ commands
    static String run(String command) throws Exception {
        switch (command) {
            case "open": open(); return "";
            case "close": close(); return "";
            case "clock": clock.currentTimeMillis(number()); return "";
            case "appender": appender(); return "";
            case "put": return put();
            case "many": many(next(), number(), number(), number()); return "";
            case "begin": // and stay in the document: its bytes are there, its word is not
                open = appender().writingDocument();
                write(open.wire());
                return Long.toHexString(open.index());
            case "end": open.close(); open = null; return Long.toHexString(appender().lastIndexAppended());
            case "undo": open.rollbackOnClose(); open.close(); open = null; return "";
            case "tail": return tail();
            case "extent": return extent();
            case "counted": return "" + queue.countExcerpts(index(), index());
            case "normalise": appender().normaliseEOFs(); return "";
            case "refresh": queue.refreshDirectoryListing(); return "";
            case "dump": return hex(queue.dump());
            case "store": queue.tableStorePut(next(), number()); return "";
            case "stored": return "" + queue.tableStoreGet(next());
            case "names": names(); return "";
            case "pid": return "" + ProcessHandle.current().pid();
            case "encode": return encode();
            case "print": return asText(bytes(next()));
            case "objects": objects(new BinaryWire(Bytes.wrapForRead(bytes(next()))), false); return "";
            case "values": objects(new BinaryWire(Bytes.wrapForRead(bytes(next()))), true); return "";
            case "parse": objects(TextWire.from(text(next())), false); return "";
            case "parsevalue": objects(TextWire.from(text(next())), true); return "";
            default: throw new IllegalArgumentException(command);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = in.readLine()) != null; ) {
            words = line.split(" ");
            at = 1;
            try {
                OUT.println("ok " + run(words[0]));
            } catch (Throwable problem) {
                OUT.println("error " + problem.toString().replace('\n', ' '));
            }
            OUT.flush();
        }
        close();
    }
}
