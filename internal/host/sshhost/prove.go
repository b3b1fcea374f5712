package sshhost

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
)

// After a login, an OpenSSH server uses these requests to announce its host keys and to prove that it owns them: see
// the file PROTOCOL of OpenSSH, section "hostkey update and rotation". OpenSSH for Windows has always supported them.
const (
	requestAnnounce = "hostkeys-00@openssh.com"
	requestProve    = "hostkeys-prove-00@openssh.com"
)

// maxHostKeys is the maximum number of announced keys that are checked. A host has one key of each type.
const maxHostKeys = 16

// announcement provides the payload of the peer's last announcement of host keys. To get it, send a channel to this
// channel, and receive from the channel that you sent. OpenSSH announces its keys before any other answer.
type announcement chan chan []byte

// listen refuses the peer's requests, but records its announcement. It stops when the channel `requests` closes.
func listen(requests <-chan *ssh.Request) announcement {
	a := make(announcement)
	go func() {
		var payload []byte
		take := func(r *ssh.Request) {
			if r.Type == requestAnnounce {
				payload = bytes.Clone(r.Payload)
			}
			if r.WantReply {
				_ = r.Reply(false, nil)
			}
		}
		for {
			select {
			case r, more := <-requests:
				if !more {
					return
				}
				take(r)
			case answer := <-a:
				for len(requests) > 0 { // first handle all requests that have already been received
					take(<-requests)
				}
				answer <- payload
			}
		}
	}()
	return a
}

// The method `announced` returns the payload of the peer's announcement, or an empty payload if there is none yet.
func (c *conn) announced() ([]byte, error) {
	answer := make(chan []byte, 1)
	select {
	case c.announcement <- answer:
		return <-answer, nil
	case <-c.gone:
		return nil, errClosed
	}
}

// announcedKeys returns the keys of known types in an announcement, best first, without duplicates. Other types are
// skipped, as in OpenSSH's own client.
func announcedKeys(payload []byte) []ssh.PublicKey {
	var keys []ssh.PublicKey
	for rest := payload; len(rest) > 0 && len(keys) < maxHostKeys; {
		var next struct {
			Key  []byte
			Rest []byte `ssh:"rest"`
		}
		if ssh.Unmarshal(rest, &next) != nil {
			break
		}
		rest = next.Rest
		key, err := ssh.ParsePublicKey(next.Key)
		if err == nil && rank(key) >= 0 &&
			!slices.ContainsFunc(keys, func(k ssh.PublicKey) bool { return !different(k, key) }) {
			keys = append(keys, key)
		}
	}
	slices.SortStableFunc(keys, func(a, b ssh.PublicKey) int { return rank(a) - rank(b) })
	return keys
}

// rank orders types of host keys, the best first. A negative rank means that the type isn't used.
func rank(key ssh.PublicKey) int {
	return slices.Index([]string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoRSA}, key.Type())
}

// ProveHostKeys implements host.Conn. It skips keys that the host can prove only with SHA-1, or that it doesn't offer
// in a handshake. If the host can't prove one of the other keys, the error is a *contract.Problem HostKeyUnproven.
func (c *conn) ProveHostKeys(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.SetupTimeout)
	defer cancel()
	c.wire.beginStep()
	var proven []string
	err := c.during(ctx, "asking for host keys", func() error {
		// The host announces its keys before it answers a keepalive. After that, no announcement follows.
		if err := c.ping(); err != nil {
			return err
		}
		payload, err := c.announced()
		if err != nil {
			return err
		}
		proven, err = keyProof{c.client, c.address, c.hostKey}.prove(shown(announcedKeys(payload), c.wire.offered()))
		return err
	})
	if err != nil {
		return nil, err
	}
	return proven, nil
}

type keyProof struct {
	client *ssh.Client
	// address is the host's address, for messages. shown is the handshake's key, as a line of authorized_keys.
	address, shown string
}

// prove asks the host to sign with each of these keys, and returns the keys that are proven. It doesn't ask for the key
// of this connection, which the handshake has already proven.
func (p keyProof) prove(keys []ssh.PublicKey) (proven []string, err error) {
	var asked []ssh.PublicKey
	var request []byte
	for _, key := range keys {
		if authorizedLine(key) != p.shown {
			asked = append(asked, key)
			request = append(request, ssh.Marshal(struct{ Key []byte }{key.Marshal()})...)
		}
	}
	signed := map[string]bool{}
	if len(asked) > 0 {
		ok, answer, err := p.client.SendRequest(requestProve, true, request)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, p.unproven("it refuses to")
		}
		if signed, err = p.verify(asked, answer); err != nil {
			return nil, err
		}
	}
	for _, key := range keys {
		if line := authorizedLine(key); line == p.shown || signed[line] {
			proven = append(proven, line)
		}
	}
	return proven, nil
}

// verify checks the answer: a signature for each key, in the same order. It returns each proven key's authorizedLine.
func (p keyProof) verify(asked []ssh.PublicKey, answer []byte) (map[string]bool, error) {
	proven := map[string]bool{}
	for _, key := range asked {
		var next struct {
			Signature []byte
			Rest      []byte `ssh:"rest"`
		}
		var signature ssh.Signature
		if ssh.Unmarshal(answer, &next) != nil || ssh.Unmarshal(next.Signature, &signature) != nil {
			return nil, p.unproven("its answer can't be read")
		}
		answer = next.Rest
		if signature.Format == ssh.KeyAlgoRSA {
			continue // SHA-1, from a server released before 2019
		}
		data := ssh.Marshal(struct {
			Request      string
			Session, Key []byte
		}{requestProve, p.client.SessionID(), key.Marshal()})
		if err := key.Verify(data, &signature); err != nil {
			return nil, p.unproven(fmt.Sprintf("the signature by %s is wrong", ssh.FingerprintSHA256(key)))
		}
		proven[authorizedLine(key)] = true
	}
	return proven, nil
}

func (p keyProof) unproven(why string) error {
	return contract.NewProblem(contract.ReasonHostKeyUnproven,
		"%s announces host keys and does not prove that it has them: %s", p.address, why)
}
