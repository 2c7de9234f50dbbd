//! Serves the sockets that name queries arrive at.

use super::question::{Over, answer};
use crate::service::Service;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Longest question.
const QUESTION_BYTES_MAX: usize = 4096;

pub(crate) async fn serve_udp(service: Arc<Service>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; QUESTION_BYTES_MAX];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                service.pause_after(&error).await;
                continue;
            }
        };
        let IpAddr::V4(address) = from.ip() else { continue };
        // Whoever asks too much at once has to ask again, which programs do by themselves.
        let Ok(permit) = service.questions.take(&service.clients.owner(address), 1) else {
            continue;
        };
        let question = buffer[..length].to_vec();
        let (service_of_question, socket) = (Arc::clone(&service), Arc::clone(&socket));
        service.spawn(async move {
            let _permit = permit;
            let service = service_of_question;
            let Some(client) = service.client(address).await else { return };
            if let Some(answer) = answer(&service, &client, &question, Over::Udp).await {
                // The client may be gone.
                let _ = socket.send_to(&answer, from).await;
            }
        });
    }
}

/// Answers the questions of one connection, one after another.
pub(crate) async fn serve_tcp(service: Arc<Service>, mut stream: TcpStream, address: Ipv4Addr) {
    let Some(client) = service.client(address).await else { return };
    while let Ok(Some(question)) =
        tokio::time::timeout(service.settings.limits.hello, read(&mut stream)).await
    {
        let Ok(_permit) = service.questions.take(&client.owner, 1) else { return };
        let Some(answer) = answer(&service, &client, &question, Over::Tcp).await else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
        let sent = tokio::time::timeout(service.settings.limits.hello, stream.write_all(&framed));
        if !matches!(sent.await, Ok(Ok(()))) {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = usize::from(stream.read_u16().await.ok()?);
    if length > QUESTION_BYTES_MAX {
        return None;
    }
    let mut question = vec![0; length];
    stream.read_exact(&mut question).await.ok()?;
    Some(question)
}
