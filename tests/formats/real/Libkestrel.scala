package com.twitter.libkestrel
import com.twitter.util._
import com.twitter.conversions.storage._
import com.twitter.conversions.time._
import config._
import java.io.File
import java.nio.ByteBuffer
import java.util.concurrent.Executors

object Drive {
  def hex(d: ByteBuffer) = { val c = d.duplicate; val b = new Array[Byte](c.remaining); c.get(b); if (b.isEmpty) "-" else b.map { "%02x".format(_) }.mkString }
  def bytes(h: String) = ByteBuffer.wrap(if (h == "-") new Array[Byte](0) else h.grouped(2).map { Integer.parseInt(_, 16).toByte }.toArray)
  def when(s: String) = if (s == "none") None else Some(Time.fromMilliseconds(s.toLong))
  def reader(s: String) = if (s == "-") "" else s
  def show(i: QueueItem) = "%d %d %d %s %s".format(i.id, i.errorCount, i.addTime.inMilliseconds, i.expireTime.map { _.inMilliseconds.toString }.getOrElse("none"), hex(i.data))
  def main(args: Array[String]) {
    val scheduler = Executors.newScheduledThreadPool(1)
    var q: JournaledQueue = null
    for (line <- io.Source.stdin.getLines) {
      val w = line.split(" ")
      try {
        w(0) match {
          case "open" =>
            q = new JournaledQueue(JournaledQueueConfig(name = w(2), journalSize = w(3).toLong.bytes), new File(w(1)), new Timer, scheduler)
            println("ok " + q.readers.map { r => (if (r.name == "") "-" else r.name) + "=" + r.items }.toList.sorted.mkString(" "))
          case "reader" => q.reader(reader(w(1))); println("ok")
          case "put" => println("ok " + q.put(bytes(w(1)), Time.fromMilliseconds(w(2).toLong), when(w(3)), w(4).toInt).isDefined)
          case "many" => for (i <- w(1).toInt until w(1).toInt + w(2).toInt) q.put(ByteBuffer.wrap(i.toString.getBytes), Time.fromMilliseconds(i), None, 0); println("ok")
          case "get" => println("ok " + q.reader(reader(w(1))).get(None)().map(show).getOrElse("none"))
          case "commit" => q.reader(reader(w(1))).commit(w(2).toLong); println("ok")
          case "unget" => q.reader(reader(w(1))).unget(w(2).toLong); println("ok")
          case "checkpoint" => q.checkpoint(); println("ok")
          case "close" => q.close(); println("ok")
          case "drain" =>
            var more = true
            while (more) q.reader(reader(w(1))).get(None)() match { case Some(i) => println("item " + show(i)); case None => more = false }
            println("ok")
        }
      } catch { case e: Throwable => println("error " + e); if (System.getProperty("chatty") != null) e.printStackTrace() }
      Console.out.flush()
    }
    scheduler.shutdownNow()
  }
}
