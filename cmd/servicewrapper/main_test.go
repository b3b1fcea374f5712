package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMain behaves like the wrapped program if the environment variable PLAYS is set.
func TestMain(m *testing.M) {
	switch os.Getenv("PLAYS") {
	case "ends":
		fmt.Println("to stdout", os.Getenv("NODE_NAME"), os.Args[1:])
		fmt.Fprintln(os.Stderr, "to stderr")
		os.Exit(7)
	case "stays":
		fmt.Println("up")
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		select {}
	}
	os.Exit(m.Run())
}

func TestTheWrappersFlagsEndWhereTheProgramBegins(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{`--log-file=C:\log`, "--env=A=1", "--env", "B=", `C:\k\x.exe`, "--env=C=3", "-v"})
	if err != nil || o.logFile != `C:\log` || !slices.Equal(o.environment, []string{"A=1", "B="}) ||
		!slices.Equal(o.command, []string{`C:\k\x.exe`, "--env=C=3", "-v"}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, wrong := range [][]string{nil, {"--env=A=1"}, {"--env=A", "x"}, {"--env==1", "x"}, {"--other", "x"}} {
		if o, err := parse(wrong); err == nil {
			t.Errorf("%q gives %+v", wrong, o)
		}
	}
}

func TestAProgramRunsWithItsEnvironmentAndItsOutputIsAppendedToTheLog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "x.log")
	o := order{logFile: log, environment: []string{"PLAYS=ends", "NODE_NAME=win-a"}, command: []string{os.Args[0], "--x"}}
	for range 2 {
		if code, err := run(t.Context(), o); code != 7 || err != nil {
			t.Fatalf("exit code %d, %v", code, err)
		}
	}
	content, err := os.ReadFile(log)
	if text := string(content); err != nil || strings.Count(text, "to stdout win-a [--x]\n") != 2 ||
		strings.Count(text, "to stderr\n") != 2 {
		t.Errorf("%q, %v", text, err)
	}
}

func TestAProgramThatCantBeRunIsAnError(t *testing.T) {
	t.Parallel()
	for _, o := range []order{{command: []string{filepath.Join(t.TempDir(), "none")}},
		{logFile: filepath.Join(t.TempDir(), "none", "log"), command: []string{os.Args[0]}}} {
		if code, err := run(t.Context(), o); code != failed || err == nil {
			t.Errorf("exit code %d, %v", code, err)
		}
	}
}

func TestAProgramEndsWhenTheWrapperIsToStop(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, order{logFile: fmt.Sprintf("/dev/fd/%d", write.Fd()), environment: []string{"PLAYS=stays"},
			command: []string{os.Args[0]}})
		_ = write.Close() // so that the test ends if the program does not start
		ended <- err
	}()
	if line, err := bufio.NewReader(read).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
