package winos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// trust is the store ROOT (LocalMachine). It also contains certificates from group policy and Windows Update.
type trust struct{}

var _ Trust = trust{}

const encodings = windows.X509_ASN_ENCODING | windows.PKCS_7_ASN_ENCODING

// List implements Trust. It doesn't parse the certificates, so an invalid certificate doesn't hide the others.
func (trust) List(ctx context.Context) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var all [][]byte
	err := inStore(windows.CERT_STORE_READONLY_FLAG, func(store windows.Handle) error {
		return eachCertificate(store, func(certificate *windows.CertContext) error {
			all = append(all, bytes.Clone(encoded(certificate)))
			return nil
		})
	})
	return all, err
}

// Add implements Trust. It compares the certificates' content itself. CryptoAPI considers two certificates with the
// same issuer and serial number equal, and would not add the second one.
func (trust) Add(ctx context.Context, der []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(der) == 0 {
		return errors.New("adding a root certificate: it is empty")
	}
	err := inStore(0, func(store windows.Handle) error {
		have, err := matches(store, der)
		release(have)
		if err != nil || len(have) > 0 {
			return err
		}
		certificate, err := windows.CertCreateCertificateContext(encodings, &der[0], uint32(len(der)))
		if err != nil {
			return fail(err, "reading the root certificate to add")
		}
		defer func() { _ = windows.CertFreeCertificateContext(certificate) }()
		err = windows.CertAddCertificateContextToStore(store, certificate, windows.CERT_STORE_ADD_ALWAYS, nil)
		return fail(err, "adding a root certificate")
	})
	if err != nil {
		return err
	}
	return expect(der, true)
}

func (trust) Remove(ctx context.Context, der []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := inStore(0, func(store windows.Handle) error {
		// Find all matching certificates first, because a deletion invalidates the enumeration.
		have, err := matches(store, der)
		if err != nil {
			release(have)
			return err
		}
		var failed []error
		for _, certificate := range have {
			// This call also frees the certificate's context, even if it fails.
			failed = append(failed, fail(windows.CertDeleteCertificateFromStore(certificate),
				"removing a root certificate"))
		}
		return errors.Join(failed...)
	})
	if err != nil {
		return err
	}
	return expect(der, false)
}

// expect opens the store again, and checks whether the certificate was really added or removed. Sometimes Windows keeps
// the old state without an error, for example for a certificate from group policy. Then expect returns ErrDenied.
func expect(der []byte, there bool) error {
	return inStore(windows.CERT_STORE_READONLY_FLAG, func(store windows.Handle) error {
		have, err := matches(store, der)
		release(have)
		if err != nil || (len(have) > 0) == there {
			return err
		}
		return fmt.Errorf("changing the root certificates: the change was not kept: %w", ErrDenied)
	})
}

func inStore(flags uint32, work func(windows.Handle) error) error {
	name, err := windows.UTF16PtrFromString("ROOT")
	if err != nil {
		return fail(err, "opening the root certificate store")
	}
	store, err := windows.CertOpenStore(windows.CERT_STORE_PROV_SYSTEM_W, 0, 0,
		windows.CERT_SYSTEM_STORE_LOCAL_MACHINE|flags,
		uintptr(unsafe.Pointer(name)))
	if err != nil {
		return fail(err, "opening the root certificate store")
	}
	return errors.Join(work(store), fail(windows.CertCloseStore(store, 0), "closing the root certificate store"))
}

// eachCertificate calls visit for every certificate. The certificate's context is valid only until visit returns.
func eachCertificate(store windows.Handle, visit func(*windows.CertContext) error) error {
	var certificate *windows.CertContext
	for {
		// The call frees the previous certificate.
		next, err := windows.CertEnumCertificatesInStore(store, certificate)
		switch {
		case errors.Is(err, windows.Errno(windows.CRYPT_E_NOT_FOUND)), errors.Is(err, windows.ERROR_NO_MORE_FILES):
			return nil
		case err != nil:
			return fail(err, "listing root certificates")
		}
		certificate = next
		if err := visit(certificate); err != nil {
			return errors.Join(err, windows.CertFreeCertificateContext(certificate))
		}
	}
}

// `matches` returns the contexts of all certificates with exactly this content. The caller must free them.
func matches(store windows.Handle, der []byte) ([]*windows.CertContext, error) {
	var all []*windows.CertContext
	err := eachCertificate(store, func(certificate *windows.CertContext) error {
		if !bytes.Equal(encoded(certificate), der) {
			return nil
		}
		mine := windows.CertDuplicateCertificateContext(certificate)
		if mine == nil {
			return fmt.Errorf("keeping a root certificate: %w", ErrNotFound)
		}
		all = append(all, mine)
		return nil
	})
	return all, err
}

func release(certificates []*windows.CertContext) {
	for _, certificate := range certificates {
		_ = windows.CertFreeCertificateContext(certificate) // always succeeds
	}
}

// `encoded` returns the certificate's DER. The bytes are part of the context's memory.
func encoded(certificate *windows.CertContext) []byte {
	return unsafe.Slice(certificate.EncodedCert, certificate.Length)
}
