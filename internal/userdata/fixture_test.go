package userdata_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

func ecdsaKey(tb testing.TB) []byte {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return marshal(tb, key)
}

// rsaLine returns a public key with this number of bits, as a line of authorized_keys. There is no private key for it.
func rsaLine(tb testing.TB, bits uint) string {
	tb.Helper()
	modulus := new(big.Int).Lsh(big.NewInt(1), bits-1)
	key, err := ssh.NewPublicKey(&rsa.PublicKey{N: modulus.SetBit(modulus, 0, 1), E: 65537})
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func hugeKey(tb testing.TB) string {
	tb.Helper()
	return rsaLine(tb, 16<<13)
}
