// The real sej under commands: one per line, an answer of any number of "item" lines and one "ok" or "error" line.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"h12.io/sej"
	"h12.io/sej/shard"
)

func data(s string) []byte {
	if s == "-" {
		return nil
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func show(b []byte) string {
	if len(b) == 0 {
		return "-"
	}
	return hex.EncodeToString(b)
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func message(w []string) *sej.Message {
	m := &sej.Message{Type: byte(number(w[1])), Key: data(w[2]), Value: data(w[3])}
	if w[0] != "zero" {
		m.Timestamp = time.Unix(0, number(w[0]))
	}
	return m
}

func scan(dir string, start uint64) (string, error) {
	s, err := sej.NewScanner(dir, start)
	if err != nil {
		return "", err
	}
	defer s.Close()
	s.Timeout = 50 * time.Millisecond
	for s.Scan() {
		m := s.Message()
		when := strconv.FormatInt(m.Timestamp.UnixNano(), 10)
		if m.Timestamp.IsZero() {
			when = "zero"
		}
		fmt.Println("item", m.Offset, when, m.Type, show(m.Key), show(m.Value))
	}
	return strings.ReplaceAll(fmt.Sprint(s.Err()), "\n", " "), nil
}

func hash(m *sej.Message) uint16 { return uint16(crc32.ChecksumIEEE(m.Key)) }

var writer *sej.Writer
var shards *shard.Writer
var reader *sej.Offset
var watched map[string]bool
var mu sync.Mutex

func do(w []string) (answer string, err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("panic: %v", e)
		}
	}()
	switch w[0] {
	case "scan":
		return scan(w[1], uint64(number(w[2])))
	case "offset", "last":
		policy := sej.FirstOffset
		if w[0] == "last" {
			policy = sej.LastOffset
		}
		o, err := sej.NewOffset(w[1], w[2], policy)
		if err != nil {
			return "", err
		}
		defer o.Close()
		if len(w) > 3 {
			err = o.Commit(uint64(number(w[3])))
		}
		return fmt.Sprint(o.Value()), err
	case "open":
		writer, err = sej.NewWriter(w[1])
		if err == nil {
			writer.SegmentSize = int(number(w[2]))
		}
		return "", err
	case "append":
		return "", writer.Append(message(w[1:]))
	case "many": // numbered messages from the given one on, each flushed: acknowledged one by one
		n, count := number(w[1]), number(w[2])
		for i := n; i < n+count; i++ {
			m := &sej.Message{Timestamp: time.Unix(0, i), Value: []byte(strconv.FormatInt(i, 10))}
			if err := writer.Append(m); err != nil {
				return "", err
			}
			if err := writer.Flush(); err != nil {
				return "", err
			}
		}
		return "", nil
	case "flush":
		return "", writer.Flush()
	case "next":
		return fmt.Sprint(writer.Offset()), nil
	case "close":
		return "", writer.Close()
	case "reader": // holds the lock of that reader until the next one is opened
		if reader != nil {
			reader.Close()
			reader = nil
		}
		if len(w) > 1 {
			reader, err = sej.NewOffset(w[1], w[2], sej.FirstOffset)
		}
		return "", err
	case "commit":
		return "", reader.Commit(uint64(number(w[1])))
	case "watch":
		watched = map[string]bool{}
		go sej.WatchRootDir(w[1], time.Millisecond, func(dir string) {
			mu.Lock()
			watched[dir] = true
			mu.Unlock()
		})
		return "", nil
	case "watched":
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		for dir := range watched {
			fmt.Println("item", dir)
		}
		return "", nil
	case "shards":
		prefix := w[2]
		if prefix == "-" {
			prefix = ""
		}
		shards, err = shard.NewWriter(shard.Path{Root: w[1], Prefix: prefix, ShardBit: uint8(number(w[3]))}, hash)
		return "", err
	case "sappend":
		return "", shards.Append(message(w[1:]))
	case "sclose":
		return "", shards.Close()
	}
	return "", fmt.Errorf("what is %q", w[0])
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<28)
	for in.Scan() {
		answer, err := do(strings.Split(in.Text(), " "))
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", answer)
		}
	}
}
