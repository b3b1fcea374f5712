package main

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// Media types of the attachments. A signature uses cosign's types, so that you can verify it with `cosign verify
// --key`: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md.
const (
	bomType             = "application/vnd.cyclonedx+json"
	signatureType       = "application/vnd.dev.cosign.artifact.sig.v1+json"
	signedType          = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	// passwordVariable holds the password of an encrypted private key, as for cosign.
	passwordVariable = "COSIGN_PASSWORD"
)

// attach creates a referrer: a manifest that names its image and contains one blob.
func attach(to v1.Descriptor, kind types.MediaType, content []byte, contentType types.MediaType,
	annotations map[string]string) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), kind)
	referrer, err := mutate.Append(base, mutate.Addendum{
		Layer: static.NewLayer(content, contentType), Annotations: annotations})
	if err != nil {
		return nil, err
	}
	subject := v1.Descriptor{MediaType: to.MediaType, Digest: to.Digest, Size: to.Size}
	return mutate.Subject(referrer, subject).(v1.Image), nil
}

// signer reads a private key in PEM, encrypted or not, in cosign's format.
func signer(path string) (signature.Signer, error) {
	loaded, err := signature.LoadSignerFromPEMFile(path, crypto.SHA256,
		func(bool) ([]byte, error) { return []byte(os.Getenv(passwordVariable)), nil })
	if err != nil {
		return nil, fmt.Errorf("reading the private key %s (its password, if any, is taken from %s): %w",
			path, passwordVariable, err)
	}
	return loaded, nil
}

// sign signs an image that is published in repository.
func sign(key signature.Signer, repository name.Repository, image v1.Descriptor) (v1.Image, error) {
	statement, err := payload.Cosign{Image: repository.Digest(image.Digest.String())}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	made, err := key.SignMessage(bytes.NewReader(statement))
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", image.Digest, err)
	}
	return attach(image, signatureType, statement, signedType,
		map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(made)})
}

// errUnsigned is returned if no signature is by the given key.
var errUnsigned = errors.New("no signature of it is by this key")

// signedBy checks whether a referrer is a signature of the image by the key. If the referrer isn't such a signature,
// signedBy returns errUnsigned. If the referrer can't be read, signedBy returns another error.
func signedBy(key signature.Verifier, referrer v1.Image, image v1.Hash) error {
	manifest, err := referrer.Manifest()
	if err != nil {
		return err
	}
	for _, described := range manifest.Layers {
		if described.MediaType != signedType {
			continue
		}
		made, err := base64.StdEncoding.DecodeString(described.Annotations[signatureAnnotation])
		if err != nil {
			continue
		}
		statement, err := content(referrer, described.Digest)
		if err != nil {
			return err
		}
		if key.VerifySignature(bytes.NewReader(made), bytes.NewReader(statement)) != nil {
			continue
		}
		var said payload.Cosign
		if err := said.UnmarshalJSON(statement); err != nil {
			continue
		}
		if said.Image.DigestStr() == image.String() {
			return nil
		}
	}
	return errUnsigned
}

// verifier reads a public key in PEM.
func verifier(path string) (signature.Verifier, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading the public key %s: %w", path, err)
	}
	return signature.LoadVerifier(key, crypto.SHA256)
}

// largestAttachment is the maximum size of an attachment in bytes. A list of parts has about 500 KiB.
const largestAttachment = 16 << 20

func content(of v1.Image, digest v1.Hash) (text []byte, err error) {
	held, err := of.LayerByDigest(digest)
	if err != nil {
		return nil, err
	}
	reader, err := held.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	text, err = io.ReadAll(io.LimitReader(reader, largestAttachment+1))
	if err == nil && len(text) > largestAttachment {
		err = fmt.Errorf("%s is larger than %d bytes", digest, largestAttachment)
	}
	return text, err
}
