package net.lag.kestrel
import com.twitter.util._
import com.twitter.conversions.storage._
import com.twitter.conversions.time._
import config._
import java.util.concurrent.Executors

class AvailabilityException(op: String, queue: String, reason: String) extends Exception(reason)

object Drive {
  def hex(b: Array[Byte]) = if (b.isEmpty) "-" else b.map { "%02x".format(_) }.mkString
  def bytes(h: String) = if (h == "-") new Array[Byte](0) else h.grouped(2).map { Integer.parseInt(_, 16).toByte }.toArray
  def when(s: String) = if (s == "0") None else Some(Time.fromMilliseconds(s.toLong))
  def show(i: QItem) = "%d %s %s %d".format(i.addTime.inMilliseconds, i.expiry.map { _.inMilliseconds }.getOrElse(0L), hex(i.data), i.xid)
  def main(args: Array[String]) {
    val scheduler = Executors.newScheduledThreadPool(1)
    Journal.packer.start()
    var q: PersistentQueue = null
    var last = 0
    for (line <- io.Source.stdin.getLines) {
      val w = line.split(" ")
      try {
        w(0) match {
          case "open" =>
            val b = new QueueBuilder()
            b.maxMemorySize = w(3).toLong.bytes
            b.maxJournalSize = w(4).toLong.bytes
            b.defaultJournalSize = w(5).toLong.bytes
            b.minJournalCompactDelay = None
            q = new PersistentQueue(w(2), w(1), b(), new Timer, scheduler, None)
            q.setup()
            println("ok " + q.length)
          case "add" => println("ok " + q.add(bytes(w(1)), when(w(3)), None, Time.fromMilliseconds(w(2).toLong)))
          case "remove" => println("ok " + q.remove(false).map(show).getOrElse("none"))
          case "tremove" => println("ok " + q.remove(true).map(show).getOrElse("none"))
          case "confirm" => q.confirmRemove(w(1).toInt); println("ok")
          case "unremove" => q.unremove(w(1).toInt); println("ok")
          case "continue" => println("ok " + q.continue(w(1).toInt, bytes(w(2)), when(w(3))))
          case "rewrite" => q.forceRewrite(null); println("ok")
          case "flush" => q.flush(); println("ok")
          case "close" => q.close(); println("ok")
          case "drain" =>
            var more = true
            while (more) q.remove(true) match { case Some(i) => println("item " + show(i)); case None => more = false }
            println("ok")
        }
      } catch { case e: Throwable => println("error " + e) }
      Console.out.flush()
    }
    scheduler.shutdownNow()
  }
}
