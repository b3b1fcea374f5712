package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/Microsoft/go-winio"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	pipe = `\\.\pipe\containerd-containerd`
	// timeout limits the whole call.
	timeout = time.Minute
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: cri <image>")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///containerd", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return winio.DialPipeContext(ctx, pipe)
		}))
	if err != nil {
		return fmt.Errorf("connecting to containerd: %w", err)
	}
	defer func() { _ = conn.Close() }()
	// The request is runtime.v1.PullImageRequest{image: ImageSpec{image: …}}. Two fields need no generated code.
	request := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType),
		protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), arguments[0]))
	var answer []byte
	if err = conn.Invoke(ctx, "/runtime.v1.ImageService/PullImage", &request, &answer,
		grpc.ForceCodec(raw{})); err != nil {
		return fmt.Errorf("pulling %s: %w", arguments[0], err)
	}
	return nil
}

// raw passes encoded messages through unchanged.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) ([]byte, error) {
	content, ok := message.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("encoding a %T", message)
	}
	return *content, nil
}

func (raw) Unmarshal(content []byte, message any) error {
	into, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("decoding a %T", message)
	}
	*into = append([]byte(nil), content...)
	return nil
}
