package sshhost

import (
	"net"

	"golang.org/x/crypto/ssh"
)

// channels is an SSH connection whose calls never wait forever. The SSH library waits forever in three cases: the
// connection ends while a channel is being opened; a channel has more than 16 unread requests, which block all reading;
// a session gets an exit status that it can't parse, and reads no more requests.
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

// OpenChannel implements ssh.Conn. If the connection ends during the call, OpenChannel returns net.ErrClosed. Then the
// library's call still waits in its own goroutine, forever.
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

// heldRequests is the maximum number of queued requests of a channel. Honest hosts send two or three.
const heldRequests = 64

// The function `taken` moves the requests of a channel to a new channel. If the new channel is full, taken drops them.
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
