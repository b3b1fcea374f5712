package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/Microsoft/go-winio"
)

// Wine connects the first client of a pipe to an instance that only reserves the pipe's name, so this client gets no
// answer. lab/wine/native/mend.c prevents this. The first client must be served like all others.
func TestTheFirstClientOfAPipeIsServedAsTheOthers(t *testing.T) {
	t.Parallel()
	const name = `\\.\pipe\wmcotest-first-client`
	listener, err := winio.ListenPipe(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	early, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if conn, err := winio.DialPipeContext(early, name); err == nil {
		_ = conn.Close()
		t.Error("a client is connected before the server accepts a connection")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn) // until the client disconnects
			_ = conn.Close()
		}
	}()
	for client := range 3 {
		if err := echo(t.Context(), name); err != nil {
			t.Errorf("client %d: %v", client, err)
		}
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// echo sends a word and expects the same word as the answer.
func echo(ctx context.Context, pipe string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := winio.DialPipeContext(ctx, pipe)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err = conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err = conn.Write([]byte("word")); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, len("word")))
	return err
}
