package winos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// trust is the store ROOT of this machine (LocalMachine), which shows the machine's own
// certificates together with those that group policy and Windows Update bring.
type trust struct{}

var _ Trust = trust{}

// encodings of the certificates that are looked at.
const encodings = windows.X509_ASN_ENCODING | windows.PKCS_7_ASN_ENCODING

// List never parses a certificate, so one that is odd is no obstacle to the others.
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

// Add compares contents itself: to CryptoAPI another certificate of the same issuer and serial
// number is "the same" one, and would keep ours out.
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
		if err != nil {
			return fail(err, "adding a root certificate")
		}
		commit(store)
		return nil
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
		// Looked up first and deleted afterwards: deleting invalidates the enumeration.
		have, err := matches(store, der)
		if err != nil {
			release(have)
			return err
		}
		var failed []error
		for _, certificate := range have {
			// Deleting also frees the context, whether it succeeds or not.
			failed = append(failed, fail(windows.CertDeleteCertificateFromStore(certificate),
				"removing a root certificate"))
		}
		if len(have) > 0 {
			commit(store)
		}
		return errors.Join(failed...)
	})
	if err != nil {
		return err
	}
	return expect(der, false)
}

// commit has changes written. Windows writes them at once, but Wine only when told. What comes of
// it is for expect to find out. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/wincrypt/nf-wincrypt-certcontrolstore.
func commit(store windows.Handle) {
	const toStorage = 3 // CERT_STORE_CTRL_COMMIT
	if certControlStore, err := function("crypt32.dll", "CertControlStore"); err == nil {
		_, _, _ = certControlStore.Call(uintptr(store), 0, toStorage, 0)
	}
}

// expect opens the store anew and checks that a certificate is there, or isn't: what can't be
// changed, such as what group policy brings, would otherwise go unnoticed.
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

// inStore runs work with the store open.
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

// eachCertificate visits all certificates of a store. The context is valid during the visit only.
func eachCertificate(store windows.Handle, visit func(*windows.CertContext) error) error {
	var certificate *windows.CertContext
	for {
		// The call frees the context that it is given.
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

// matches gives contexts, which the caller must free, of all certificates with exactly this
// content.
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

// encoded is the certificate's DER, in memory that belongs to the context.
func encoded(certificate *windows.CertContext) []byte {
	return unsafe.Slice(certificate.EncodedCert, certificate.Length)
}
