// Stranger is a consumer of franz-go. `strangers/events.py` has the lines that it prints, `telling.py` its options.
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	pollTimeout    = 50 * time.Millisecond
	commitInterval = time.Second
	commitTimeout  = 5 * time.Second
	makeUp         = 200 * time.Millisecond
)

var balancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"sticky":             kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

type offsets map[string]map[int32]kgo.EpochOffset

// stranger keeps what it has handled and not committed. Callbacks of the group wait for AllowRebalance, so
// they never run beside handle.
type stranger struct {
	client      *kgo.Client
	rate        float64
	batch       int
	busyUntil   time.Time
	uncommitted offsets
}

func main() {
	options := map[string]string{}
	for _, word := range os.Args[1:] {
		name, value, _ := strings.Cut(word, "=")
		options[name] = value
	}
	rate, _ := strconv.ParseFloat(options["rate"], 64)
	s := &stranger{rate: rate, batch: 500, uncommitted: offsets{}}
	if rate > 0 {
		s.batch = int(math.Max(1, math.Round(rate/10)))
	}
	client, err := kgo.NewClient(s.settings(options)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.client = client
	ended, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	s.run(ended)
}

func (s *stranger) settings(options map[string]string) []kgo.Opt {
	settings := []kgo.Opt{
		kgo.SeedBrokers(options["bootstrap"]),
		kgo.ClientID(options["client"]),
		kgo.ConsumerGroup(options["group"]),
		kgo.ConsumeTopics(options["topic"]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			say("assigned" + listed(taken))
		}),
		kgo.OnPartitionsRevoked(s.revoke),
		kgo.OnPartitionsLost(s.lose),
	}
	if options["instance"] != "" {
		settings = append(settings, kgo.InstanceID(options["instance"]))
	}
	if options["protocol"] == "consumer" {
		return append(settings, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	var offered []kgo.GroupBalancer
	for _, name := range strings.Split(options["assignors"], ",") {
		offered = append(offered, balancers[name]())
	}
	return append(settings,
		kgo.Balancers(offered...),
		kgo.HeartbeatInterval(milliseconds(options["heartbeat"])),
		kgo.SessionTimeout(milliseconds(options["session"])))
}

func milliseconds(text string) time.Duration {
	count, _ := strconv.Atoi(text)
	return time.Duration(count) * time.Millisecond
}

func (s *stranger) run(ended context.Context) {
	committedAt := time.Now()
	for ended.Err() == nil {
		s.handle(ended)
		if time.Since(committedAt) > commitInterval {
			committedAt = time.Now()
			s.commit(s.uncommitted)
		}
		s.client.AllowRebalance()
	}
	s.commit(s.uncommitted)
	s.client.CloseAllowingRebalance()
	say("closed")
}

func (s *stranger) handle(ended context.Context) {
	polling, cancel := context.WithTimeout(ended, pollTimeout)
	defer cancel()
	fetches := s.client.PollRecords(polling, s.batch)
	for _, failed := range fetches.Errors() {
		if polling.Err() == nil {
			fmt.Fprintln(os.Stderr, failed.Err)
		}
	}
	if s.rate > 0 {
		s.work(fetches.NumRecords())
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		first, last := p.Records[0], p.Records[len(p.Records)-1]
		say(fmt.Sprintf("read %s-%d %d %d", p.Topic, p.Partition, first.Offset, last.Offset))
		if s.uncommitted[p.Topic] == nil {
			s.uncommitted[p.Topic] = map[int32]kgo.EpochOffset{}
		}
		s.uncommitted[p.Topic][p.Partition] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
	})
}

// work waits until count records are handled; it makes up for a short delay.
func (s *stranger) work(count int) {
	if earliest := time.Now().Add(-makeUp); s.busyUntil.Before(earliest) {
		s.busyUntil = earliest
	}
	s.busyUntil = s.busyUntil.Add(time.Duration(float64(count) / s.rate * float64(time.Second)))
	time.Sleep(time.Until(s.busyUntil))
}

func (s *stranger) revoke(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
	handled := offsets{}
	for topic, numbers := range taken {
		handled[topic] = map[int32]kgo.EpochOffset{}
		for _, number := range numbers {
			if next, ok := s.uncommitted[topic][number]; ok {
				handled[topic][number] = next
			}
		}
	}
	s.commit(handled)
	s.forget(taken)
	say("revoked" + listed(taken))
}

func (s *stranger) lose(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
	s.forget(taken)
	say("lost" + listed(taken))
}

func (s *stranger) forget(taken map[string][]int32) {
	for topic, numbers := range taken {
		for _, number := range numbers {
			delete(s.uncommitted[topic], number)
		}
	}
}

// commit tells a refusal; the next commit repeats it.
func (s *stranger) commit(handled offsets) {
	committing, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	request := offsets{}
	for topic, numbers := range handled {
		if len(numbers) > 0 {
			request[topic] = numbers
		}
	}
	if len(request) == 0 {
		return
	}
	s.client.CommitOffsetsSync(committing, request, func(
		_ *kgo.Client, sent *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		for i, topic := range answer.Topics {
			s.committed(sent.Topics[i].Topic, topic.Partitions, request)
		}
	})
}

func (s *stranger) committed(topic string, answers []kmsg.OffsetCommitResponseTopicPartition, request offsets) {
	for _, answer := range answers {
		if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		say(fmt.Sprintf("committed %s-%d %d", topic, answer.Partition, request[topic][answer.Partition].Offset))
		delete(s.uncommitted[topic], answer.Partition)
	}
}

func listed(taken map[string][]int32) string {
	var text strings.Builder
	for topic, numbers := range taken {
		for _, number := range numbers {
			fmt.Fprintf(&text, " %s-%d", topic, number)
		}
	}
	return text.String()
}

func say(what string) {
	now := time.Now()
	fmt.Printf("%d.%06d %s\n", now.Unix(), now.Nanosecond()/1000, what)
}
