// Small stand-ins for what the two projects use of com.twitter.util, logging, ostrich and finagle: no logic of theirs.
package com.twitter.util {
  case class Duration(inNanoseconds: Long) extends Ordered[Duration] {
    def compare(o: Duration) = inNanoseconds.compare(o.inNanoseconds)
    def inMilliseconds = inNanoseconds / 1000000L
    def inMillis = inMilliseconds
    def inMicroseconds = inNanoseconds / 1000L
    def inSeconds = (inNanoseconds / 1000000000L).toInt
    def +(o: Duration) = Duration(inNanoseconds + o.inNanoseconds)
    def -(o: Duration) = Duration(inNanoseconds - o.inNanoseconds)
    def *(n: Long) = Duration(inNanoseconds * n)
    def /(n: Long) = Duration(inNanoseconds / n)
    def min(o: Duration) = if (this < o) this else o
    def max(o: Duration) = if (this > o) this else o
    def fromNow = Time.now + this
    def ago = Time.now - this
    def isFinite = inNanoseconds != Long.MaxValue
  }
  object Duration {
    val MaxValue = Duration(Long.MaxValue)
    val Top = MaxValue
    def fromMilliseconds(ms: Long) = Duration(ms * 1000000L)
    def fromNanoseconds(ns: Long) = Duration(ns)
    def apply(n: Long, unit: java.util.concurrent.TimeUnit): Duration = Duration(unit.toNanos(n))
  }
  case class Time(inMilliseconds: Long) extends Ordered[Time] {
    def compare(o: Time) = inMilliseconds.compare(o.inMilliseconds)
    def inNanoseconds = inMilliseconds * 1000000L
    def inMillis = inMilliseconds
    def inSeconds = (inMilliseconds / 1000).toInt
    def +(d: Duration) = Time(inMilliseconds + d.inMilliseconds)
    def -(d: Duration) = Time(inMilliseconds - d.inMilliseconds)
    def -(o: Time) = Duration((inMilliseconds - o.inMilliseconds) * 1000000L)
    def min(o: Time) = if (this < o) this else o
    def max(o: Time) = if (this > o) this else o
  }
  object Time {
    def now = Time(System.currentTimeMillis)
    val epoch = Time(0)
    val never = Time(Long.MaxValue)
    val Top = never
    def fromMilliseconds(ms: Long) = Time(ms)
    def fromSeconds(s: Int) = Time(s * 1000L)
  }
  class TimeoutException(m: String = "") extends Exception(m)
  trait Future[A] {
    def get0: Option[Either[Throwable, A]]
    def respond0(f: Either[Throwable, A] => Unit): Unit
    def get(): A = apply(); def isDefined = get0.isDefined
    def apply(): A = get0.get match { case Right(v) => v; case Left(e) => throw e }
    def apply(d: Duration): A = apply()
    def onSuccess(f: A => Unit): Future[A] = { respond0 { case Right(v) => f(v); case _ => }; this }
    def onFailure(f: Throwable => Unit): Future[A] = { respond0 { case Left(e) => f(e); case _ => }; this }
    def ensure(f: => Unit): Future[A] = { respond0 { _ => f }; this }
    def respond(f: Try[A] => Unit): Future[A] = { respond0 { e => f(Try0(e)) }; this }
    def flatMap[B](f: A => Future[B]): Future[B] = {
      val p = new Promise[B]
      respond0 { case Right(v) => f(v).respond0 { p.set0(_) }; case Left(e) => p.setException(e) }
      p
    }
    def map[B](f: A => B): Future[B] = flatMap { v => Future.value(f(v)) }
    def foreach(f: A => Unit) { onSuccess(f) }
    def cancel() {}
    def isCancelled = false
  }
  trait Try[+A] { def apply(): A; def isReturn: Boolean }
  case class Return[A](v: A) extends Try[A] { def apply() = v; def isReturn = true }
  case class Throw[A](e: Throwable) extends Try[A] { def apply() = throw e; def isReturn = false }
  object Try0 { def apply[A](e: Either[Throwable, A]): Try[A] = e match { case Right(v) => Return(v); case Left(x) => Throw(x) } }
  class Promise[A] extends Future[A] {
    private var it: Option[Either[Throwable, A]] = None
    private var waiting: List[Either[Throwable, A] => Unit] = Nil
    def get0 = synchronized { it }
    def set0(v: Either[Throwable, A]): Boolean = {
      val run = synchronized { if (it.isDefined) return false; it = Some(v); val w = waiting.reverse; waiting = Nil; w }
      run.foreach { _(v) }
      true
    }
    def respond0(f: Either[Throwable, A] => Unit) {
      val now = synchronized { if (it.isEmpty) waiting = f :: waiting; it }
      now.foreach(f)
    }
    def setValue(v: A) { set0(Right(v)) }
    def setException(e: Throwable) { set0(Left(e)) }
    def updateIfEmpty(t: Try[A]): Boolean = t match { case Return(v) => set0(Right(v)); case Throw(e) => set0(Left(e)) }
    def onCancellation(f: => Unit) {}
    def isInterrupted: Option[Throwable] = None
    def setInterruptHandler(f: PartialFunction[Throwable, Unit]) {}
  }
  object Promise { def apply[A]() = new Promise[A] }
  object Future {
    def value[A](v: A): Future[A] = { val p = new Promise[A]; p.setValue(v); p }
    def exception[A](e: Throwable): Future[A] = { val p = new Promise[A]; p.setException(e); p }
    def apply[A](v: => A): Future[A] = value(v)
    val Unit: Future[Unit] = value(())
    val Done = Unit
  }
  object NonFatal { def unapply(t: Throwable): Option[Throwable] = scala.util.control.NonFatal.unapply(t) }
  object Stopwatch { def start(): () => Duration = { val b = System.nanoTime; () => Duration(System.nanoTime - b) } }
  trait TimerTask { def cancel(): Unit }
  class Timer {
    val none = new TimerTask { def cancel() {} }
    def schedule(when: Time)(f: => Unit): TimerTask = none
    def schedule(period: Duration)(f: => Unit): TimerTask = none
    def schedule(when: Time, period: Duration)(f: => Unit): TimerTask = none
    def stop() {}
  }
  case class StorageUnit(inBytes: Long) extends Ordered[StorageUnit] {
    def compare(o: StorageUnit) = inBytes.compare(o.inBytes)
    def toHuman() = inBytes + " B"
    def inMegabytes = inBytes >> 20
  }
}
package com.twitter.conversions {
  object storage {
    implicit class IntStorage(n: Int) { private val it = new LongStorage(n); def bytes = it.bytes; def byte = it.bytes; def kilobytes = it.kilobytes; def kilobyte = it.kilobytes; def megabytes = it.megabytes; def megabyte = it.megabytes; def gigabytes = it.gigabytes; def gigabyte = it.gigabytes }
    implicit class LongStorage(n: Long) {
      import com.twitter.util.StorageUnit
      def bytes = StorageUnit(n); def kilobytes = StorageUnit(n << 10); def megabytes = StorageUnit(n << 20); def gigabytes = StorageUnit(n << 30)
    }
  }
  object time {
    import com.twitter.util.Duration
    class T(n: Long) {
      def nanoseconds = Duration(n); def microseconds = Duration(n * 1000); def milliseconds = Duration(n * 1000000L); def millisecond = milliseconds; def millis = milliseconds
      def seconds = Duration(n * 1000000000L); def second = seconds; def minutes = Duration(n * 60000000000L); def minute = minutes
      def hours = Duration(n * 3600000000000L); def hour = hours; def days = Duration(n * 86400000000000L); def day = days
    }
    implicit def intT(n: Int): T = new T(n)
    implicit def longT(n: Long): T = new T(n)
  }
}
package com.twitter.logging {
  class Logger {
    def say(m: String, a: Seq[Any]) { if (System.getProperty("chatty") != null) System.err.println(if (a.isEmpty) m else m.format(a: _*)) }
    def info(m: String, a: Any*) { say(m, a) }
    def debug(m: String, a: Any*) {}
    def trace(m: String, a: Any*) {}
    def warning(m: String, a: Any*) { say(m, a) }
    def error(m: String, a: Any*) { say(m, a) }
    def critical(m: String, a: Any*) { say(m, a) }
    def fatal(m: String, a: Any*) { say(m, a) }
    def error(t: Throwable, m: String, a: Any*) { say(m + " " + t, Nil) }
    def warning(t: Throwable, m: String, a: Any*) { say(m + " " + t, Nil) }
    def critical(t: Throwable, m: String, a: Any*) { say(m + " " + t, Nil) }
    def fatal(t: Throwable, m: String, a: Any*) { say(m + " " + t, Nil) }
    def debug(t: Throwable, m: String, a: Any*) {}
    def info(t: Throwable, m: String, a: Any*) {}
  }
  object Logger { val it = new Logger; def get(c: Class[_]) = it; def get() = it; def get(n: String) = it }
}
package com.twitter.ostrich.stats {
  class Metric { def add(n: Int) {} ; def clear() {} }
  object Stats {
    def incr(n: String, c: Int = 1) {}
    def makeCounter(n: String, c: Any) {}
    def addMetric(n: String, v: Int) {}
    def getMetric(n: String) = new Metric
    def removeMetric(n: String) {}
    def addGauge(n: String)(f: => Double) {}
    def clearGauge(n: String) {}
    def setGauge(n: String, v: Double) {}
    def removeCounter(n: String) {}
    def addLabel(n: String, v: String) {}
    def setLabel(n: String, v: String) {}
    def time[A](n: String)(f: => A): A = f
    def getCounter(n: String) = new Object { def apply() = 0L; def incr() {} ; def incr(n: Int) {} ; def reset() {} }
  }
}
package com.twitter.ostrich.admin {
  object BackgroundProcess { def spawn(n: String)(f: => Unit) {} ; def spawnThread(n: String)(f: => Unit) {} }
}
package com.twitter.finagle.thrift { case class ClientId(name: String); object ClientId { def current: Option[ClientId] = None } }
