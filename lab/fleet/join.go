package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/userdata"
	"github.com/windows-nodes/wmco/lab/sim"
)

// settings matches the quoted JSON in the command that a host runs to join by itself.
var settings = regexp.MustCompile(`'(\{"program".*\})'`)

// IsJoinCommand reports whether a script contains the command that a host runs to join by itself.
func IsJoinCommand(script string) bool { return settings.MatchString(script) }

// PowerShell simulates Windows PowerShell on a host. It can only run the command for a host that joins by itself.
type PowerShell struct {
	Files winos.Files
	// Home is the home directory of the administrator.
	Home string
	// Run runs a program in Home and returns its exit code. The program writes its standard output and its standard
	// error to out.
	Run func(ctx context.Context, program string, arguments []string, in io.Reader, out io.Writer) (code int, err error)
}

// RunJoinCommand runs the command on a simulated machine: see PowerShell.Join.
func RunJoinCommand(ctx context.Context, m *sim.Machine, command string) (output string, err error) {
	run := func(ctx context.Context, program string, arguments []string, in io.Reader, out io.Writer) (int, error) {
		line := program + " " + strings.Join(arguments, " ")
		return m.Exec(ctx, sim.ExecRequest{CommandLine: line, Stdout: out, Stderr: out, Stdin: in}), nil
	}
	return PowerShell{Files: m.Host().Files, Home: m.Home(), Run: run}.Join(ctx, command)
}

// Join simulates the command that makes a host join without SSH. If the host doesn't have the daemon's program yet,
// Join downloads it. Then it verifies the program and runs it. output is the text that an administrator would see.
func (p PowerShell) Join(ctx context.Context, command string) (output string, err error) {
	found := settings.FindStringSubmatch(command)
	if found == nil {
		return "", errors.New("the command has no settings")
	}
	var s userdata.Join
	if err = json.Unmarshal([]byte(strings.ReplaceAll(found[1], "''", "'")), &s); err != nil {
		return "", fmt.Errorf("reading the settings: %w", err)
	}
	dir := p.Home + `\` + contract.RPCDir
	program := dir + `\` + contract.UploadedName(s.Program.Digest)
	present, err := winos.Exists(p.Files, program)
	if err != nil {
		return "", err
	}
	if !present {
		content, err := download(ctx, s)
		if err != nil {
			return "", fmt.Errorf("downloading the program: %w", err)
		}
		if err = errors.Join(p.Files.MkdirAll(dir, winos.AccessInherit),
			winos.WriteFile(p.Files, dir+`\ca.crt`, strings.NewReader(s.Attendance.CA), winos.AccessInherit),
			winos.WriteFile(p.Files, program, bytes.NewReader(content), winos.AccessInherit)); err != nil {
			return "", err
		}
	}
	attendance, err := json.Marshal(s.Attendance)
	if err != nil {
		return "", err
	}
	var said bytes.Buffer
	code, err := p.Run(ctx, program, []string{"attend"}, bytes.NewReader(append(attendance, "\r\n"...)), &said)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, said.String())
	}
	return said.String(), err
}

func download(ctx context.Context, s userdata.Join) (content []byte, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.Attendance.CA))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.Attendance.Token)
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 512))
		return nil, fmt.Errorf("%s: %s", answer.Status, text)
	}
	if content, err = io.ReadAll(answer.Body); err != nil {
		return nil, err
	}
	if is := contract.Digest(content); is != s.Program.Digest || int64(len(content)) != s.Program.Size {
		return nil, fmt.Errorf("%d bytes with SHA-256 %s came instead of %v", len(content), is, s.Program)
	}
	return content, nil
}
