package winostest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"testing"
	"time"
)

func trustCases() []testCase {
	return []testCase{
		{name: "a certificate that is added twice is there once", run: trustTwice},
		{name: "removing one certificate leaves the others", run: trustOthers},
		{name: "certificates of one issuer and serial number are two", run: trustTwins},
		{name: "a certificate that does not parse is kept and in nobodys way", needs: []Ability{OddCertificates},
			run: trustOdd},
		{name: "what is no certificate is refused", run: trustRefused},
	}
}

// newCA creates a root certificate.
func newCA(t *testing.T, name string, serial int64) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(serial), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	noError(t, err)
	return der
}

// odd creates a certificate that Windows accepts and Go's parser rejects: its serial number is negative.
func odd(t *testing.T, name string) []byte {
	t.Helper()
	serial := []byte{0x02, 0x08, 0x5a, 0x17, 0x2b, 0x3c, 0x4d, 0x5e, 0x6f, 0x71} // an INTEGER of eight bytes
	der := newCA(t, name, 0x5a172b3c4d5e6f71)
	at := bytes.Index(der, serial)
	if at < 0 {
		t.Fatal("the serial number was not found in the certificate")
	}
	der[at+2] |= 0x80
	if _, err := x509.ParseCertificate(der); err == nil {
		t.Fatal("Go's parser accepts the certificate, but it must reject it")
	}
	return der
}

func (m machine) roots(t *testing.T) [][]byte {
	t.Helper()
	all, err := m.Host.Trust.List(t.Context())
	noError(t, err)
	return all
}

func (m machine) addRoot(t *testing.T, der []byte) {
	t.Helper()
	noError(t, m.Host.Trust.Add(t.Context(), der))
	t.Cleanup(func() { noError(t, m.Host.Trust.Remove(context.WithoutCancel(t.Context()), der)) })
}

// expectRoots checks the store: each certificate in the list `has` must be there exactly once, and no certificate in
// the list `lacks`. All other certificates must be unchanged.
func (m machine) expectRoots(t *testing.T, before [][]byte, has, lacks [][]byte) {
	t.Helper()
	all := m.roots(t)
	for i, der := range has {
		if n := occurrences(all, der); n != 1 {
			t.Errorf("certificate %d is in the store %d times, want once", i, n)
		}
	}
	for i, der := range lacks {
		if n := occurrences(all, der); n != 0 {
			t.Errorf("certificate %d was removed, but is in the store %d times", i, n)
		}
	}
	for _, der := range before {
		if occurrences(all, der) == 0 && !slices.ContainsFunc(lacks,
			func(l []byte) bool { return bytes.Equal(l, der) }) {
			t.Error("a certificate that this test did not add was removed")
		}
	}
	if want := len(before) + len(has); len(all) != want {
		t.Errorf("the store has %d certificates, want %d", len(all), want)
	}
}

func occurrences(all [][]byte, der []byte) int {
	n := 0
	for _, have := range all {
		if bytes.Equal(have, der) {
			n++
		}
	}
	return n
}

func trustTwice(m machine) {
	t := m.t
	before, der := m.roots(t), newCA(t, m.prefix, 1)
	m.addRoot(t, der)
	m.addRoot(t, der)
	m.expectRoots(t, before, [][]byte{der}, nil)
}

func trustOthers(m machine) {
	t := m.t
	before := m.roots(t)
	a, b, c := newCA(t, m.prefix+"a", 1), newCA(t, m.prefix+"b", 2), newCA(t, m.prefix+"c", 3)
	for _, der := range [][]byte{a, b, c} {
		m.addRoot(t, der)
	}
	for range 2 {
		noError(t, m.Host.Trust.Remove(t.Context(), b))
		m.expectRoots(t, before, [][]byte{a, c}, [][]byte{b})
	}
	m.addRoot(t, b)
	m.expectRoots(t, before, [][]byte{a, b, c}, nil)
}

func trustTwins(m machine) {
	t := m.t
	before := m.roots(t)
	a, b := newCA(t, m.prefix, 7), newCA(t, m.prefix, 7)
	m.addRoot(t, a)
	m.addRoot(t, b)
	m.expectRoots(t, before, [][]byte{a, b}, nil)
	noError(t, m.Host.Trust.Remove(t.Context(), a))
	m.expectRoots(t, before, [][]byte{b}, [][]byte{a})
}

func trustOdd(m machine) {
	t := m.t
	before := m.roots(t)
	strange, plain := odd(t, m.prefix+"odd"), newCA(t, m.prefix+"plain", 1)
	m.addRoot(t, strange)
	m.addRoot(t, plain)
	m.expectRoots(t, before, [][]byte{strange, plain}, nil)
	noError(t, m.Host.Trust.Remove(t.Context(), plain))
	m.expectRoots(t, before, [][]byte{strange}, [][]byte{plain})
	noError(t, m.Host.Trust.Remove(t.Context(), strange))
	m.expectRoots(t, before, nil, [][]byte{strange, plain})
}

func trustRefused(m machine) {
	t := m.t
	before := m.roots(t)
	for _, der := range [][]byte{nil, {}, []byte("-----BEGIN CERTIFICATE-----"), {0x30, 0x82}} {
		if err := m.Host.Trust.Add(t.Context(), der); err == nil {
			t.Errorf("%q was accepted as a certificate", der)
		}
		noError(t, m.Host.Trust.Remove(t.Context(), der))
	}
	m.expectRoots(t, before, nil, nil)
}
