package sshhost

import (
	"net"

	"golang.org/x/crypto/ssh"
)

// channels is an SSH connection whose end is always noticed. The SSH library has three ways to wait without end: for a
// channel that it asks for as the connection ends; to read on, even that end, while a channel has more than 16 requests
// that are not received; and in a session, which receives none after an exit status that it can't read.
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

// OpenChannel is ssh.Conn. It gives net.ErrClosed once the connection is gone; a wait of the library is left behind.
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

// heldRequests is how many requests of a channel may wait for who reads them. Honest hosts send two or three.
const heldRequests = 64

// taken takes each request of a channel, and passes on those for which there is room.
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
