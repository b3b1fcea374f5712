package journey

import (
	"context"
	"fmt"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/userdata"
)

// invitationRetry is how often the operator checks whether a host ran its command. Normally, its report comes earlier.
const invitationRetry = time.Minute

// await publishes the command for a host that joins by itself, and opens the connection when the host has reported.
// Then it withdraws the command, which revokes the command's token.
func (a *Access) await(ctx context.Context, instance *v1alpha1.WindowsInstance, session *Session) Outcome {
	session.End()
	conn, boot, isOpen, err := a.options.Calls.Dial(ctx, policy.HostID(instance), instance.Status.HostKey)
	switch {
	case err != nil:
		return Retry(err)
	case conn == nil && !instance.DeletionTimestamp.IsZero():
		return Fail(contract.NewProblem(contract.ReasonHostSilent, "host %s is being removed, and no host reads its "+
			"calls", instance.Spec.Address))
	case conn == nil:
		return a.invite(ctx, instance, isOpen)
	// If a host does not reboot in time, the operator requests the reboot again: see join.recognise.
	case !session.RebootTime.IsZero() && a.options.Now().Sub(session.RebootTime) <= RebootLimit &&
		session.RebootedBoot == boot:
		return a.dialFailed(instance, session,
			contract.NewProblem(contract.ReasonConnectionLost, "the host is not back yet"))
	}
	command, err := a.options.Calls.Read(ctx, contract.JoinSecretPrefix+string(instance.UID))
	if err == nil && command != nil {
		err = a.options.Invitations.Withdraw(ctx, instance)
	}
	if err != nil {
		return Retry(err)
	}
	session.Conn = conn
	return Done()
}

func (a *Access) invite(ctx context.Context, instance *v1alpha1.WindowsInstance, isOpen bool) Outcome {
	switch id := policy.HostID(instance); {
	case id == "":
		return WaitEndless(invitationRetry, contract.ReasonHostAwaited, "the host of Machine %s has not requested its "+
			"certificate yet", instance.Spec.Source.Name)
	case instance.Status.HostKey != "": // don't invite a second host
		if err := a.options.Invitations.OpenCalls(ctx, instance); err != nil {
			return Retry(err)
		}
		return WaitEndless(invitationRetry, contract.ReasonHostSilent, "host %s has its certificate and does not read "+
			"its calls yet", instance.Spec.Address)
	}
	secret, err := a.options.Calls.Read(ctx, contract.JoinSecretPrefix+string(instance.UID))
	if err != nil {
		return Retry(err)
	}
	if !isOpen || secret == nil || len(secret.Data[contract.JoinCommandField]) == 0 {
		command, err := a.options.joinCommand(ctx, string(instance.UID))
		if err != nil {
			return WaitForCluster(err)
		}
		if err = a.options.Invitations.Publish(ctx, instance, command); err != nil {
			return Retry(fmt.Errorf("publishing the command of host %s: %w", instance.Spec.Address, err))
		}
	} else if ends, err := time.Parse(time.RFC3339, string(secret.Data[contract.JoinExpiresField])); err == nil &&
		!a.options.Now().Before(ends) {
		return WaitEndless(invitationRetry, contract.ReasonJoinTokenExpired, "the token in the command expired at %s",
			ends.Format(time.RFC3339))
	}
	return WaitEndless(invitationRetry, contract.ReasonHostAwaited, "the command of host %s was not run yet",
		instance.Spec.Address)
}

// MachinesCommand returns the command in the user data of Machines. If the command can't be created yet, the error is a
// *contract.Problem.
func (o *Options) MachinesCommand(ctx context.Context, now time.Time) (string, error) {
	command, err := o.joinCommand(ctx, "")
	if err != nil {
		return "", err
	}
	token, err := o.Invitations.MachinesToken(ctx, now)
	if err != nil {
		return "", err
	}
	return command(token)
}

// joinCommand returns a function that creates a join command with a token. uid is empty for the user data of Machines.
// If the command can't be created yet, the error is a *contract.Problem.
func (o *Options) joinCommand(ctx context.Context, uid string) (command func(token string) (string, error), err error) {
	_, facts, err := o.Desired.Current(ctx)
	if err != nil {
		return nil, err
	}
	program, ok := o.Payload.Manifest().Named(contract.ServiceDaemon + ".exe")
	if !ok {
		return nil, contract.NewProblem(contract.ReasonPayloadMissing, "the payload has no %s.exe",
			contract.ServiceDaemon)
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/services/https:%s:%d/proxy", o.Namespace,
		contract.PayloadService, contract.PayloadServerPort)
	return func(token string) (string, error) {
		return userdata.JoinCommand(userdata.Join{Program: program.Blob(),
			URL: facts.APIServer + path + contract.PayloadServerPath + program.Blob().Digest,
			Attendance: contract.Attendance{APIServer: facts.APIServer, CA: facts.BootstrapCA, Payload: path,
				Namespace: o.Namespace, UID: uid, Token: token}})
	}, nil
}
