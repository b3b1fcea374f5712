package hosttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// Machine is one host and the connection to it. A new Machine is a healthy Windows Server: it accepts every login,
// and each verb succeeds. It is safe for concurrent use.
type Machine struct {
	mu      sync.Mutex
	facts   contract.HostFacts
	hostKey string
	// proven are the host keys that the machine can prove.
	proven  []string
	keys    map[string]bool // private keys that may log in; nil accepts every key
	faults  map[string]error
	answers map[contract.Verb]any

	dials    int
	open     map[*conn]bool
	uploaded bool
	sent     int64
	calls    []contract.Verb
	last     map[contract.Verb]json.RawMessage
	// node is the node name from bootstrap. Cleanup empties it.
	node string
	// requests are the daemon's certificate requests, by node name.
	requests map[string][]byte
}

var _ host.Dialer = (*Machine)(nil)

// Steps that can fail, in addition to the verbs.
const (
	Dialling       = "dial"
	Uploading      = "upload"
	Sending        = "send"
	RemovingUpload = "remove upload"
	Proving        = "prove"
)

// New returns a healthy machine: build 20348, in its first boot, at 10.0.0.1.
func New(name string) *Machine {
	return &Machine{
		facts: contract.HostFacts{
			Hostname: name, MachineID: "machine-" + name, BootID: "boot-1",
			ProductName: "Windows Server 2022 Datacenter", Build: 20348, UBR: 2340, NodeIP: "10.0.0.1",
		},
		hostKey: "ssh-ed25519 AAAA" + name, faults: map[string]error{}, answers: map[contract.Verb]any{},
		open: map[*conn]bool{},
		last: map[contract.Verb]json.RawMessage{}, requests: map[string][]byte{},
	}
}

// Fail makes a step (Dialling, …, or a verb) fail without an answer from now on. A nil error repairs it.
func (m *Machine) Fail(step string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[step] = err
}

// Answer makes a verb return this result or this *contract.Problem from now on. A nil answer restores the healthy
// answer.
func (m *Machine) Answer(verb contract.Verb, answer any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[verb] = answer
}

// Change changes the facts that preflight returns, such as the name or the boot.
func (m *Machine) Change(change func(facts *contract.HostFacts)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.facts)
}

// Facts returns the facts of a healthy preflight.
func (m *Machine) Facts() contract.HostFacts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts
}

// Prove makes the machine prove these host keys from now on. If shown is not empty, the machine shows this key instead
// of its previous one.
func (m *Machine) Prove(shown string, proven ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if shown != "" {
		m.hostKey = shown
	}
	m.proven = proven
}

// Authorize makes the machine accept exactly these private keys from now on.
func (m *Machine) Authorize(privateKeys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = map[string]bool{}
	for _, key := range privateKeys {
		m.keys[key] = true
	}
}

// Break closes all connections.
func (m *Machine) Break() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.open)
}

// Dials returns the number of connection attempts.
func (m *Machine) Dials() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials
}

// Open returns the number of open connections.
func (m *Machine) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// Sent returns the number of payload bytes that arrived.
func (m *Machine) Sent() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent
}

// Uploaded reports whether the daemon's program is on the machine.
func (m *Machine) Uploaded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uploaded
}

// Node returns the node name from bootstrap. After cleanup, it is empty.
func (m *Machine) Node() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// Calls returns the verbs that ran, in order.
func (m *Machine) Calls() []contract.Verb {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// Request decodes the last request of a verb. If there was none, it returns false.
func (m *Machine) Request(verb contract.Verb, into any) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.last[verb]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(text, into)
}

// Dial opens a connection. Like a real host's dialer, it fails if the host key is not the expected one.
func (m *Machine) Dial(ctx context.Context, target host.Target) (host.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dials++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := m.faults[Dialling]; err != nil {
		return nil, err
	}
	if target.HostKey != "" && target.HostKey != m.hostKey {
		return nil, contract.NewProblem(contract.ReasonHostKeyMismatch, "%s shows another key", target.Address)
	}
	if m.keys != nil && !m.keys[string(target.PrivateKey)] {
		return nil, contract.NewProblem(contract.ReasonKeyRefused, "%s refuses the key", target.Address)
	}
	c := &conn{machine: m, shown: m.hostKey, address: m.addressOf(target)}
	m.open[c] = true
	return c, nil
}

// addressOf returns the address of a target. A host name means the machine's own address. The lock is held.
func (m *Machine) addressOf(target host.Target) netip.Addr {
	address, err := netip.ParseAddr(target.Address)
	if err != nil {
		address, _ = netip.ParseAddr(m.facts.NodeIP) // a fake NodeIP may be no address
	}
	return address
}

// answer returns the answer of a verb. The lock is held.
func (m *Machine) answer(verb contract.Verb, request json.RawMessage) (any, error) {
	if scripted := m.answers[verb]; scripted != nil {
		return scripted, nil
	}
	switch verb {
	case contract.VerbPreflight:
		return contract.PreflightAnswer{Facts: m.facts}, nil
	case contract.VerbPrepare:
		return contract.PrepareAnswer{BootID: m.facts.BootID}, nil
	case contract.VerbReceive:
		return contract.ReceiveAnswer{}, nil
	case contract.VerbBootstrap:
		asked := contract.BootstrapRequest{}
		err := json.Unmarshal(request, &asked)
		m.node = asked.NodeName
		return contract.BootstrapAnswer{NodeName: asked.NodeName, DaemonCSR: m.requestOf(asked.NodeName)},
			err
	case contract.VerbHandover:
		return contract.HandoverAnswer{}, nil
	case contract.VerbCleanup:
		asked := contract.CleanupRequest{}
		if err := json.Unmarshal(request, &asked); err != nil {
			return nil, err
		}
		return m.clean(asked), nil
	}
	return nil, fmt.Errorf("running %s: unknown verb", verb)
}

// clean removes the node from the machine, unless the request names another machine. The lock is held.
func (m *Machine) clean(asked contract.CleanupRequest) any {
	isAnother := asked.NodeName != "" && asked.NodeName != m.node ||
		asked.MachineID != "" && asked.MachineID != m.facts.MachineID
	if m.node != "" && isAnother {
		return contract.NewProblem(contract.ReasonHostDuplicate, "the machine that answers is node %q, not %q", m.node,
			asked.NodeName)
	}
	m.node = ""
	return contract.CleanupAnswer{}
}

// conn is one connection to a Machine.
type conn struct {
	machine *Machine
	// shown is the host key of the machine at the time of the connection.
	shown string
	// address is the address of the connection.
	address netip.Addr
}

var _ host.Conn = (*conn)(nil)

func (c *conn) HostKey() string { return c.shown }

func (c *conn) Address() netip.Addr { return c.address }

func (c *conn) ProveHostKeys(ctx context.Context) ([]string, error) {
	unlock, err := c.begin(ctx, Proving)
	defer unlock()
	return slices.Clone(c.machine.proven), err
}

// begin takes the lock. If the step fails, it returns an error.
func (c *conn) begin(ctx context.Context, step string) (unlock func(), err error) {
	c.machine.mu.Lock()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case !c.machine.open[c]:
		err = contract.NewProblem(contract.ReasonConnectionLost, "the connection is closed")
	default:
		err = c.machine.faults[step]
	}
	return c.machine.mu.Unlock, err
}

func (c *conn) Upload(ctx context.Context, daemon host.Blob) (int64, error) {
	unlock, err := c.begin(ctx, Uploading)
	defer unlock()
	if err != nil || c.machine.uploaded {
		return 0, err
	}
	c.machine.uploaded = true
	return daemon.Size, nil
}

func (c *conn) Send(ctx context.Context, _ string, content io.Reader) (int64, error) {
	unlock, err := c.begin(ctx, Sending)
	defer unlock()
	if err != nil {
		return 0, err
	}
	sent, err := io.Copy(io.Discard, content)
	c.machine.sent += sent
	return sent, err
}

func (c *conn) Call(ctx context.Context, verb contract.Verb, request []byte) ([]byte, error) {
	unlock, err := c.begin(ctx, string(verb))
	defer unlock()
	if err != nil {
		return nil, err
	}
	c.machine.calls, c.machine.last[verb] = append(c.machine.calls, verb), request
	result, err := c.machine.answer(verb, request)
	if err != nil {
		return nil, err
	}
	envelope := contract.Answer[any]{Result: result}
	if problem, ok := result.(*contract.Problem); ok {
		envelope = contract.Answer[any]{Problem: problem}
	}
	return json.Marshal(envelope)
}

func (c *conn) RemoveUpload(ctx context.Context) error {
	unlock, err := c.begin(ctx, RemovingUpload)
	defer unlock()
	if err == nil {
		c.machine.uploaded = false
	}
	return err
}

func (c *conn) Err() error {
	unlock, err := c.begin(context.Background(), "")
	defer unlock()
	return err
}

func (c *conn) Close() error {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	delete(c.machine.open, c)
	return nil
}

// requestOf returns the daemon's certificate request. A repeated call returns the same request.
func (m *Machine) requestOf(node string) []byte {
	if m.requests[node] == nil {
		m.requests[node] = CertificateRequest(contract.DaemonUserPrefix+node, contract.DaemonGroup)
	}
	return m.requests[node]
}

// CertificateRequest creates a key and a certificate request in PEM.
func CertificateRequest(name, organization string, dnsNames ...string) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // this happens only if the system has no randomness
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name, Organization: []string{organization}}, DNSNames: dnsNames}, key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
