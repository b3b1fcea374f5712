package sshhost

import (
	"crypto/dsa" //nolint:staticcheck // such keys must be refused
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
)

func must[T any](value T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

// smallRSA returns a key of 1024 bits, which the standard library no longer creates.
func smallRSA(tb testing.TB) []byte {
	tb.Helper()
	e := big.NewInt(65537)
	for {
		p, q := must(rand.Prime(rand.Reader, 512))(tb), must(rand.Prime(rand.Reader, 512))(tb)
		one := big.NewInt(1)
		phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
		d := new(big.Int).ModInverse(e, phi)
		n := new(big.Int).Mul(p, q)
		if d == nil || n.BitLen() != 1024 {
			continue
		}
		key := struct {
			Version       int
			N, E, D, P, Q *big.Int
			Dp, Dq, Qinv  *big.Int
		}{0, n, e, d, p, q, new(big.Int).Mod(d, new(big.Int).Sub(p, one)),
			new(big.Int).Mod(d, new(big.Int).Sub(q, one)), new(big.Int).ModInverse(q, p)}
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: must(asn1.Marshal(key))(tb)})
	}
}

func dsaKey(tb testing.TB) []byte {
	tb.Helper()
	key := new(dsa.PrivateKey)
	if err := dsa.GenerateParameters(&key.Parameters, rand.Reader, dsa.L1024N160); err != nil {
		tb.Fatal(err)
	}
	if err := dsa.GenerateKey(key, rand.Reader); err != nil {
		tb.Fatal(err)
	}
	form := struct {
		Version       int
		P, Q, G, Y, X *big.Int
	}{0, key.P, key.Q, key.G, key.Y, key.X}
	return pem.EncodeToMemory(&pem.Block{Type: "DSA PRIVATE KEY", Bytes: must(asn1.Marshal(form))(tb)})
}

func TestParseKeyTakesGoodKeys(t *testing.T) {
	t.Parallel()
	_, ed, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ec := must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))(t)
	rs := must(rsa.GenerateKey(rand.Reader, 3072))(t)
	pkcs8 := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(ed))(t)})
	cases := map[string]struct {
		pem  []byte
		kind string
	}{
		"Ed25519 in OpenSSH's format": {pemOf(t, ed), "ssh-ed25519"},
		"Ed25519 in PKCS#8":           {pkcs8, "ssh-ed25519"},
		"ECDSA in SEC 1": {pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY",
			Bytes: must(x509.MarshalECPrivateKey(ec))(t)}), "ecdsa-sha2-nistp521"},
		"RSA in PKCS#1": {pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(rs)}), "ssh-rsa"},
		"RSA in OpenSSH's format": {pemOf(t, rs), "ssh-rsa"},
		"lines that end as on Windows": {[]byte("\r\n" + strings.ReplaceAll(string(pemOf(t, ed)), "\n", "\r\n") +
			"\r\n"), "ssh-ed25519"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := ParseKey(c.pem)
			if err != nil {
				t.Fatal(err)
			}
			if kind, _, _ := strings.Cut(key.Line, " "); kind != c.kind {
				t.Errorf("the kind is %s, want %s", kind, c.kind)
			}
			signer, err := ssh.ParsePrivateKey(c.pem)
			if err != nil {
				t.Fatal(err)
			}
			line := strings.TrimRight(string(ssh.MarshalAuthorizedKey(signer.PublicKey())), "\n")
			sum := sha256.Sum256([]byte(line))
			if key.Line != line || key.Hash != hex.EncodeToString(sum[:]) {
				t.Errorf("returned the line %q and the hash %s", key.Line, key.Hash)
			}
		})
	}
}

// The expected line comes from ssh-keygen -y, and its hash from sha256sum. So the expected values don't come from the
// code under test.
func TestParseKeyHashesTheLineWithoutItsNewline(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed([]byte{
		0xc5, 0xaa, 0x8d, 0xf4, 0x3f, 0x9f, 0x83, 0x7b, 0xed, 0xb7, 0x44, 0x2f, 0x31, 0xdc, 0xb7, 0xb1,
		0x66, 0xd3, 0x85, 0x35, 0x07, 0x6f, 0x09, 0x4b, 0x85, 0xce, 0x3a, 0x2e, 0x0b, 0x44, 0x58, 0xf7,
	})
	got, err := ParseKey(pemOf(t, key))
	if err != nil {
		t.Fatal(err)
	}
	want := PublicKey{
		Line: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPxRzY5iGKGjjaR+0AIw8FgIFu0TujMDrF3rkRVIkIAl",
		Hash: "7d054bc59efabadf45b4e4a68ecf324f1734e4daa37bb0edd46c38a6a5a8475b",
	}
	if got != want {
		t.Errorf("gives %+v, want %+v", got, want)
	}
}

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	_, ed, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := pemOf(t, ed)
	encrypted := pem.EncodeToMemory(must(ssh.MarshalPrivateKeyWithPassphrase(ed, "", []byte("secret")))(t))
	old := &pem.Block{Type: "RSA PRIVATE KEY",
		Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("whatever")}
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))(t)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(ed.Public()))(t)})
	cases := map[string]struct {
		pem  []byte
		says string
	}{
		"nothing":           {nil, "empty"},
		"white space":       {[]byte(" \r\n\t"), "empty"},
		"words":             {[]byte("my key is under the mat"), "not in PEM"},
		"a public key line": {[]byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ"), "not in PEM"},
		"a public key":      {public, "public key"},
		"a certificate": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
			"can't be read"},
		"PuTTY's format":               {[]byte("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n"), "PuTTY"},
		"a key with a passphrase":      {encrypted, "encrypted"},
		"an old key with a passphrase": {pem.EncodeToMemory(old), "encrypted"},
		"half a key":                   {good[:len(good)/2], "can't be read"},
		"a key with damage in it":      {[]byte(strings.Replace(string(good), "A", "!", 3)), "can't be read"},
		"RSA of 1024 bits":             {smallRSA(t), "less than 2048"},
		"DSA":                          {dsaKey(t), "neither"},
		"a curve that SSH does not use": {pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY",
			Bytes: must(x509.MarshalECPrivateKey(p224))(t)}), "SSH does not use"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseKey(c.pem)
			wantReason(t, err, contract.ReasonPrivateKeyInvalid, "under the mat", "AAAAC3")
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v, want %q", err, c.says)
			}
		})
	}
}

func FuzzParseKey(f *testing.F) {
	_, ed, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pemOf(f, ed))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := ParseKey(text)
		if err == nil && (key.Line == "" || len(key.Hash) != 64) {
			t.Errorf("an accepted key has no line or hash: %+v", key)
		}
		if _, found := contract.AsProblem(err); err != nil && !found {
			t.Errorf("%v is no problem", err)
		}
	})
}
