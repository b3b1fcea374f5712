package sshhost

import (
	"net"

	"golang.org/x/crypto/ssh"
)

// channels is an SSH connection whose end is always noticed. The SSH library can wait forever in three cases:
// it opens a channel while the connection ends; a channel has more than 16 unread requests, which blocks all
// reading; a session gets an exit status that it can't parse and then reads no more requests.
type channels struct {
	ssh.Conn
	gone <-chan struct{}
}

func newChannels(conn ssh.Conn) channels {
	gone := make(chan struct{})
	go func() {
		_ = conn.Wait()
		close(gone)
	}()
	return channels{Conn: conn, gone: gone}
}

// OpenChannel implements ssh.Conn. It returns net.ErrClosed if the connection is gone, and leaves the
// library's blocked goroutine behind.
func (c channels) OpenChannel(kind string, extra []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	type result struct {
		channel  ssh.Channel
		requests <-chan *ssh.Request
		err      error
	}
	answered := make(chan result, 1)
	go func() {
		channel, requests, err := c.Conn.OpenChannel(kind, extra)
		if err == nil {
			requests = taken(requests)
		}
		answered <- result{channel, requests, err}
	}()
	select {
	case r := <-answered:
		return r.channel, r.requests, r.err
	case <-c.gone:
		return nil, nil, net.ErrClosed
	}
}

// heldRequests is how many requests of a channel may be queued. Honest hosts send two or three.
const heldRequests = 64

// taken reads every request of a channel and queues as many as there is room for.
func taken(from <-chan *ssh.Request) <-chan *ssh.Request {
	to := make(chan *ssh.Request, heldRequests)
	go func() {
		defer close(to)
		for request := range from {
			select {
			case to <- request:
			default:
			}
		}
	}()
	return to
}
